"""Reads a profile into four to ten sentences with numbers, by fixed rules.  Pure.

Each rule looks at some metrics and returns a sentence or None: where nothing is known, nothing is
said.  The first sentence is the bound that the numbers show (`kernel_bound`); the others are those
that matter beside it.  They are about the longest kernel, and those about time about the whole
call, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from actors.evaluator.profiling import ncu_metrics
from actors.evaluator.profiling.bound_causes import REGISTERS_A_BLOCK
from actors.evaluator.profiling.kernel_bound import Bound, BoundKind, bound_of, limit_text
from actors.evaluator.profiling.memory_sentences import (
    bank_conflicts,
    cache_hits,
    dram_traffic,
    local_memory,
    unused_bytes,
)
from actors.evaluator.profiling.ncu_metrics import KernelMetrics, MeasuredCall, MeasuredKernel
from actors.evaluator.profiling.sentence import ProfileContext, Sentence
from protocol.figure_text import amount_text, bytes_text

MAX_SENTENCES = 10
SHOWN_METRICS = 4  # of a sentence
SHOWN_KERNELS = 3  # in the list of a call's kernels
SECOND_KERNEL_SHARE = 0.25  # of the call's time: from here on its bound is told, too
LAUNCH_BOUND_SHARE = 0.5  # of the call's time: kernels that take less leave the rest to the host
MOST_OF_CALL = 0.75  # of the call's time: kernels that take less have the rest told beside a bound
DIVERGENT_THREADS = 28.0  # of 32: below it branches or idle lanes are told
MIN_TOLD_WAVES = 0.05  # fewer are told as idle multiprocessors
MIN_STALL_SHARE = 0.05  # of the waiting: shorter waits are not named beside the longest
TAIL_WAVES = 8.0  # in more waves the last one matters little
FULL = 0.9  # of the multiprocessors: a grid that keeps as many busy, without a tail, is not told
LARGEST_BLOCK = 1024  # threads

Rule = Callable[[MeasuredKernel, MeasuredCall, ProfileContext], Sentence | None]


def profile_sentences(call: MeasuredCall, context: ProfileContext) -> list[Sentence]:
    """Return the sentences of a profiled call, the bound first; [] where no kernel was measured."""
    if not call.kernels:
        return []
    longest = call.kernels[0]
    bound = _host_bound(call, context) or _bound(longest, context)
    first = _bound_sentences(call, bound, context)
    times = _times(longest, call, context)
    found = [rule(longest, call, context) for rule in _rules_beside(bound)]
    told = set(bound.told) if bound is not None else set()
    rest = [each for each in found if each is not None and not told.issuperset(each.metrics)]
    if len(call.kernels) > 1 and rest:
        name, us = longest.metrics.name, longest.metrics.us
        text = f"What follows is about {name} ({amount_text(us)} µs a launch)."
        rest = [Sentence(text=text, metrics=times.metrics), *rest]
    return [*first, times, *rest][:MAX_SENTENCES]


def sources_of(sentences: Sequence[Sentence]) -> str:
    """Return a line for each sentence: the metrics that it was read off, for people."""
    lines = []
    for number, sentence in enumerate(sentences, 1):
        shown, more = sentence.metrics[:SHOWN_METRICS], len(sentence.metrics) - SHOWN_METRICS
        rest = f" and {more} more" if more > 0 else ""
        lines.append(f"sentence {number}: {', '.join(shown)}{rest}")
    return "\n".join(lines)


# --- the rules, in the order of the sentences -----------------------------------------------------


def _times(kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext) -> Sentence:
    name, metrics = kernel.metrics.name, (ncu_metrics.DURATION,)
    whole = ""
    if context.call_us:
        whole = f"; the judged time is that of the whole call, {amount_text(context.call_us)} µs"
    if call.launches == 1 and not call.is_cut:
        text = f"One kernel, {name}: {amount_text(call.us)} µs under ncu, with empty caches{whole}."
        return Sentence(text=text, metrics=metrics)
    shown = call.kernels[:SHOWN_KERNELS]
    rest = f" and {len(call.kernels) - len(shown) + call.other_kernels} more"
    more = rest if len(call.kernels) + call.other_kernels > len(shown) else ""
    if call.is_cut:  # the call's own time is not that of these launches
        parts = [
            f"{one.metrics.name} {amount_text(one.metrics.us)} µs{_longest_of(one)}"
            for one in shown
        ]
        text = f"ncu measured {_launches(call, context)}: {', '.join(parts)}{more}{whole}."
    else:
        parts = [f"{one.metrics.name} {one.total_us / call.us:.0%}{_count(one)}" for one in shown]
        kernels = f"{call.launches} kernels of a call take {amount_text(call.us)} µs under ncu"
        text = f"{kernels}, with empty caches: {', '.join(parts)}{more}{whole}."
    return Sentence(text=text, metrics=metrics)


def _launches(call: MeasuredCall, context: ProfileContext) -> str:
    """Return which launches of a longer call were measured."""
    measured = f"{'' if call.is_chosen else 'the first '}{call.launches}"
    return f"{measured} of the call's {f'{context.launches} ' * bool(context.launches)}launches"


def _longest_of(kernel: MeasuredKernel) -> str:
    return f" (the longest of {kernel.launches})" if kernel.launches > 1 else ""


def _count(kernel: MeasuredKernel) -> str:
    return f" ({kernel.launches} launches)" if kernel.launches > 1 else ""


def _compute(
    kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext
) -> Sentence | None:
    pipes = list(kernel.metrics.pipes.items())
    issue = kernel.metrics.launch_share(ncu_metrics.ISSUE_SHARE)
    if not pipes or issue is None:
        return None
    told = [f"{name} {share:.0%}" for name, share in pipes[:3] if share >= 0.005]
    tensor = dict(pipes).get("tensor cores")
    if tensor is not None and tensor < 0.005:
        told.append("tensor cores unused")
    issued = f"an instruction is issued in {issue:.0%} of the cycles"
    text = f"Busy pipes, of the whole time: {', '.join(told)}; {issued}."
    return Sentence(text=text, metrics=(*ncu_metrics.PIPES, ncu_metrics.ISSUE_SHARE))


def _occupancy(
    kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext
) -> Sentence | None:
    metrics = kernel.metrics
    reached = metrics.share(ncu_metrics.OCCUPANCY)
    possible = metrics.share(ncu_metrics.MAX_OCCUPANCY)
    if reached is None or possible is None:
        return None
    text = f"Occupancy is {reached:.0%} of a multiprocessor's threads"
    limit = limit_text(metrics)
    text += f" of at most {possible:.0%}"
    text += f": {limit}" if limit and possible < 0.995 else ""
    registers, shared = metrics.figure(ncu_metrics.REGISTERS), metrics.shared_bytes
    if registers is not None:
        text += f" ({registers:.0f} registers a thread"
        text += f", {bytes_text(shared)} of shared memory a block)" if shared else ")"
    text += _larger_blocks(metrics, possible)
    used = (ncu_metrics.OCCUPANCY, ncu_metrics.MAX_OCCUPANCY, *ncu_metrics.OCCUPANCY_LIMITS)
    return Sentence(text=f"{text}.", metrics=used)


def _larger_blocks(metrics: KernelMetrics, possible: float) -> str:
    """Return what larger blocks with as much shared memory would reach, where that limits them."""
    block, registers = map(metrics.figure, (ncu_metrics.BLOCK, ncu_metrics.REGISTERS))
    name, blocks = metrics.occupancy_limit or ("", 0)
    if name != "shared memory" or not block or not registers:
        return ""
    sizes = (LARGEST_BLOCK, LARGEST_BLOCK // 2, LARGEST_BLOCK // 4)
    fitting = [size for size in sizes if size * registers * blocks <= REGISTERS_A_BLOCK]
    if not fitting or fitting[0] <= block:
        return ""
    reached = min(1.0, possible * fitting[0] / block)
    return f"; blocks of {fitting[0]} threads would allow {reached:.0%}"


def _grid(kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext) -> Sentence | None:
    metrics = kernel.metrics
    grid, block = metrics.figure(ncu_metrics.GRID), metrics.figure(ncu_metrics.BLOCK)
    waves, busy = metrics.figure(ncu_metrics.WAVES), metrics.busy_multiprocessors
    count = metrics.figure(ncu_metrics.SM_COUNT)
    if grid is None or block is None or waves is None:
        return None
    blocks = f"{grid:.0f} {'block' if grid == 1 else 'blocks'}"
    text = f"The grid has {blocks} of {block:.0f} threads"
    text += f", {waves:.2f} waves" if waves >= MIN_TOLD_WAVES else ""
    has_tail = False
    if count and grid < count:
        text += f": {count - grid:.0f} of {count:.0f} multiprocessors never have a block"
    elif 1 < waves < TAIL_WAVES:
        rest = waves - int(waves)
        has_tail = rest > 0
        text += f": the last wave fills {rest:.0%} of the card" if rest else ""
    if busy is not None and not (count and grid < count):
        text += f"; on average {busy:.0%} of the multiprocessors have a block"
        text += f"; without the tail {1 - busy:.0%} less time at best" if has_tail else ""
    is_full = waves >= 1 and busy is not None and busy >= FULL and not has_tail
    if is_full and not (count and grid < count):
        return None
    used = ncu_metrics.GRID, ncu_metrics.BLOCK, ncu_metrics.WAVES, ncu_metrics.SM_ACTIVE
    return Sentence(text=f"{text}.", metrics=used)


def _waits(kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext) -> Sentence | None:
    reasons = list(kernel.metrics.stalls.items())[:3]
    if not reasons:
        return None
    stalls = [one for one in reasons if one[1] >= MIN_STALL_SHARE] or reasons[:1]
    metrics = kernel.metrics
    parts = [f"{metrics.stall_text(reason)} ({reason}, {share:.0%})" for reason, share in stalls]
    return Sentence(
        text=f"A warp that is not issuing waits for {', '.join(parts)}.",
        metrics=tuple(ncu_metrics.STALL_METRICS),
    )


def _divergence(
    kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext
) -> Sentence | None:
    active = kernel.metrics.figure(ncu_metrics.ACTIVE_THREADS)
    if not active or active >= DIVERGENT_THREADS:
        return None
    text = f"On average {active:.1f} of a warp's 32 threads take part in an instruction."
    return Sentence(text=text, metrics=(ncu_metrics.ACTIVE_THREADS,))


# Sentences beside which bounds they say nothing, in the order in which they are told.
_STARTING: tuple[BoundKind, ...] = ("host", "launch")
RULES: tuple[tuple[Rule, tuple[BoundKind, ...]], ...] = (
    (dram_traffic, _STARTING),
    (cache_hits, (*_STARTING, "compute", "issue", "L2 slice")),
    (unused_bytes, (*_STARTING, "compute", "issue", "L2 slice")),
    (local_memory, _STARTING),
    (bank_conflicts, (*_STARTING, "L2 slice")),
    (_compute, (*_STARTING, "parallelism", "memory", "latency", "L1", "L2", "L2 slice")),
    (_occupancy, (*_STARTING, "parallelism", "L2 slice")),
    (_grid, (*_STARTING, "L2 slice")),
    (_waits, _STARTING),
    (_divergence, _STARTING),
)
_ROOM = (_occupancy, _grid)  # more warps or blocks help no unit that is saturated


def _rules_beside(bound: Bound | None) -> list[Rule]:
    """Return the rules whose sentences matter beside a bound."""
    if bound is None:
        return [rule for rule, _ in RULES]
    left_out = _ROOM if bound.is_saturated else ()
    return [rule for rule, kinds in RULES if bound.kind not in kinds and rule not in left_out]


# --- the bound ------------------------------------------------------------------------------------


def _bound(kernel: MeasuredKernel, context: ProfileContext) -> Bound | None:
    return bound_of(kernel.metrics, context.copy_gb_s, context.cached_read_gb_s)


def _bound_sentences(
    call: MeasuredCall, bound: Bound | None, context: ProfileContext
) -> list[Sentence]:
    """Return the bound of the call or of its longest kernel, and that of a long second one."""
    found = []
    if bound is not None:
        is_alone = len(call.kernels) == 1 or bound.kind == "host"
        begin = "Bound by" if is_alone else f"{_whose(call.kernels[0], call)} is bound by"
        rest = "" if bound.kind == "host" else _rest_of_call(call, context)
        found.append(Sentence(text=f"{begin} {bound.text}{rest}.", metrics=bound.metrics))
    is_host = bound is not None and bound.kind == "host"
    is_long = len(call.kernels) > 1 and call.kernels[1].total_us >= SECOND_KERNEL_SHARE * call.us
    if is_long and not is_host:
        second = _bound(call.kernels[1], context)
        if second is not None:
            text = f"{_whose(call.kernels[1], call)} is bound by {second.text}."
            found.append(Sentence(text=text, metrics=second.metrics))
    return found


def _whose(kernel: MeasuredKernel, call: MeasuredCall) -> str:
    share = "" if call.is_cut else f" ({kernel.total_us / call.us:.0%} of the time)"
    return f"{kernel.metrics.name}{share}"


def _rest_of_call(call: MeasuredCall, context: ProfileContext) -> str:
    """Return what the bound of a kernel says nothing of: launches and the host."""
    us = context.device_us if call.is_cut else call.us
    if not context.call_us or us is None or us >= MOST_OF_CALL * context.call_us:
        return ""
    rest, whole = amount_text(context.call_us - us, 3), amount_text(context.call_us)
    return f"; launches and the host take {rest} of the call's {whole} µs"


def _host_bound(call: MeasuredCall, context: ProfileContext) -> Bound | None:
    """Tell a call whose kernels take less than half of its time."""
    us = context.device_us if call.is_cut else call.us
    if not context.call_us or us is None or us >= LAUNCH_BOUND_SHARE * context.call_us:
        return None
    launches = (context.launches or call.launches) if call.is_cut else call.launches
    kernels = "kernel takes" if launches == 1 else f"{launches} kernels take"
    text = (
        f"launches and work on the host: the {kernels} {amount_text(us)} of the call's "
        f"{amount_text(context.call_us)} µs{_launching(launches, context)}"
    )
    return Bound(kind="host", text=text, metrics=(ncu_metrics.DURATION,))


def _launching(launches: int, context: ProfileContext) -> str:
    """Return what launching takes, and what else the host does; "" where a graph may launch."""
    one_us, call_us = context.next_launch_us, context.call_us
    if not one_us or not call_us or launches * one_us >= call_us:
        return ""
    each = f" ({one_us:.3g} µs each)" if launches > 1 else ""
    rest = amount_text(call_us - launches * one_us, 3)
    return (
        f", launching takes about {amount_text(launches * one_us, 3)} µs{each}, and other work of "
        f"the host (Python, libraries) {rest} µs; kernels run meanwhile"
    )
