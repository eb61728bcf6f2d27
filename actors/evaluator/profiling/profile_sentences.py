"""Reads a profile into four to ten sentences with numbers, by fixed rules.  Pure.

Each rule looks at some metrics and returns a sentence or None: where nothing is known, nothing is
said.  The last sentence is the bound that the numbers show (`kernel_bound`).  The sentences are
about the longest kernel, and the first and the last one about the whole call, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from actors.evaluator.profiling import ncu_metrics
from actors.evaluator.profiling.kernel_bound import bound_of
from actors.evaluator.profiling.memory_sentences import (
    bank_conflicts,
    cache_hits,
    dram_traffic,
    local_memory,
    unused_bytes,
)
from actors.evaluator.profiling.ncu_metrics import MeasuredCall, MeasuredKernel
from actors.evaluator.profiling.sentence import ProfileContext, Sentence
from protocol.figure_text import bytes_text

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
IDLE_PIPES = ("memory", "latency")  # bounds that say of the pipes what there is to say
FULL = 0.9  # of the multiprocessors: a grid that keeps as many busy, without a tail, is not told
ALL_BUSY = 0.97  # of the multiprocessors: below it figures where blocks run are said to be such

Rule = Callable[[MeasuredKernel, MeasuredCall, ProfileContext], Sentence | None]


def profile_sentences(call: MeasuredCall, context: ProfileContext) -> list[Sentence]:
    """Return the sentences of a profiled call, the bound last; [] where no kernel was measured."""
    if not call.kernels:
        return []
    longest = call.kernels[0]
    found = [rule(longest, call, context) for rule in RULES]
    bound = _bound(call, context)
    kept = [sentence for sentence in found if sentence is not None]
    return [*kept[: MAX_SENTENCES - len(bound)], *bound]


def sources_of(sentences: Sequence[Sentence]) -> str:
    """Return a line for each sentence: the metrics that it was read off, for people."""
    lines = []
    for number, sentence in enumerate(sentences, 1):
        shown, more = sentence.metrics[:SHOWN_METRICS], len(sentence.metrics) - SHOWN_METRICS
        rest = f" and {more} more" if more > 0 else ""
        lines.append(f"sentence {number}: {', '.join(shown)}{rest}")
    return "\n".join(lines)


# --- the rules, in the order of the sentences -----------------------------------------------------


def _times(kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext) -> Sentence | None:
    name, metrics = kernel.metrics.name, (ncu_metrics.DURATION,)
    whole = ""
    if context.call_us:
        whole = f"; the judged time is that of the whole call, {context.call_us:.4g} µs"
    if call.launches == 1 and not call.is_cut:
        text = f"One kernel, {name}: {call.us:.4g} µs under ncu, with empty caches{whole}."
        return Sentence(text=text, metrics=metrics)
    shown = call.kernels[:SHOWN_KERNELS]
    rest = f" and {len(call.kernels) - len(shown) + call.other_kernels} more"
    more = rest if len(call.kernels) + call.other_kernels > len(shown) else ""
    if call.is_cut:  # the call's own time is not that of these launches
        parts = [f"{one.metrics.name} {one.metrics.us:.4g} µs{_count(one)}" for one in shown]
        text = f"{_launches(call, context)} were measured: {', '.join(parts)}{more}{whole}."
    else:
        parts = [f"{one.metrics.name} {one.total_us / call.us:.0%}{_count(one)}" for one in shown]
        kernels = f"{call.launches} kernels of a call take {call.us:.4g} µs under ncu"
        text = f"{kernels}, with empty caches: {', '.join(parts)}{more}{whole}."
    if len(call.kernels) > 1:
        text += f" What follows is about {name} ({kernel.metrics.us:.4g} µs a launch)."
    return Sentence(text=text, metrics=metrics)


def _launches(call: MeasuredCall, context: ProfileContext) -> str:
    """Return which launches of a longer call were measured."""
    whole = f" {context.launches}" if context.launches else ""
    chosen = f"{call.launches} launches of the longest" if call.is_chosen else ""
    return f"{chosen or f'The first {call.launches}'} of the{whole} kernels"


def _count(kernel: MeasuredKernel) -> str:
    return f" ({kernel.launches} launches)" if kernel.launches > 1 else ""


def _compute(
    kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext
) -> Sentence | None:
    pipes = list(kernel.metrics.pipes.items())
    issue = kernel.metrics.share(ncu_metrics.ISSUE_SHARE)
    bound = bound_of(kernel.metrics, context.copy_gb_s)
    if not pipes or issue is None or (bound is not None and bound.kind in IDLE_PIPES):
        return None
    told = [f"{name} {share:.0%}" for name, share in pipes[:3] if share >= 0.005]
    tensor = dict(pipes).get("tensor cores")
    if tensor is not None and tensor < 0.005:
        told.append("tensor cores unused")
    busy = kernel.metrics.busy_multiprocessors
    where = " where blocks run" if busy is not None and busy < ALL_BUSY else ""
    issued = f"an instruction is issued in {issue:.0%} of the cycles"
    text = f"Busy pipes{where}: {', '.join(told)}; {issued}."
    return Sentence(text=text, metrics=(*ncu_metrics.PIPES, ncu_metrics.ISSUE_SHARE))


def _occupancy(
    kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext
) -> Sentence | None:
    metrics = kernel.metrics
    reached = metrics.share(ncu_metrics.OCCUPANCY)
    possible = metrics.share(ncu_metrics.MAX_OCCUPANCY)
    if reached is None or possible is None:
        return None
    text = f"Occupancy is {reached:.0%} of a multiprocessor's threads, {possible:.0%} is possible"
    limit = metrics.occupancy_limit
    if limit and possible < 0.995:
        name, blocks = limit
        text += f": {name} allow{'s' if name == 'shared memory' else ''} {blocks}"
        text += f" {'block' if blocks == 1 else 'blocks'} a multiprocessor"
    registers = metrics.figure(ncu_metrics.REGISTERS)
    shared = metrics.figure(ncu_metrics.SHARED_BYTES)
    if registers is not None:
        text += f" ({registers:.0f} registers a thread"
        text += f", {bytes_text(shared)} of shared memory a block)" if shared else ")"
    used = (ncu_metrics.OCCUPANCY, ncu_metrics.MAX_OCCUPANCY, *ncu_metrics.OCCUPANCY_LIMITS)
    return Sentence(text=f"{text}.", metrics=used)


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


# Sentences beyond `MAX_SENTENCES` are left out from the end, but never the bound.
RULES: tuple[Rule, ...] = (
    *(_times, dram_traffic, cache_hits, unused_bytes, local_memory, bank_conflicts),
    *(_compute, _occupancy, _grid, _waits, _divergence),
)


# --- the bound ------------------------------------------------------------------------------------


def _bound(call: MeasuredCall, context: ProfileContext) -> list[Sentence]:
    """Return the bound of a long second kernel, and that of the call."""
    found = []
    if len(call.kernels) > 1 and call.kernels[1].total_us >= SECOND_KERNEL_SHARE * call.us:
        second = call.kernels[1]
        bound = bound_of(second.metrics, context.copy_gb_s)
        if bound is not None:
            share = second.total_us / call.us
            text = f"{second.metrics.name} ({share:.0%} of the time) is bound by {bound.text}."
            found.append(Sentence(text=text, metrics=bound.metrics))
    whole = _host_bound(call, context)
    bound = bound_of(call.kernels[0].metrics, context.copy_gb_s)
    if whole is not None:
        found.append(whole)
    elif bound is not None:
        rest = _rest_of_call(call, context)
        found.append(Sentence(text=f"Bound by {bound.text}{rest}.", metrics=bound.metrics))
    return found


def _rest_of_call(call: MeasuredCall, context: ProfileContext) -> str:
    """Return what the bound of a kernel says nothing of: launches and the host."""
    us = context.device_us if call.is_cut else call.us
    if not context.call_us or us is None or us >= MOST_OF_CALL * context.call_us:
        return ""
    rest_us = context.call_us - us
    return f"; launches and the host take {rest_us:.3g} of the call's {context.call_us:.4g} µs"


def _host_bound(call: MeasuredCall, context: ProfileContext) -> Sentence | None:
    """Tell a call whose kernels take less than half of its time."""
    us = context.device_us if call.is_cut else call.us
    if not context.call_us or us is None or us >= LAUNCH_BOUND_SHARE * context.call_us:
        return None
    launches = (context.launches or call.launches) if call.is_cut else call.launches
    launch = f" (an empty kernel takes {context.launch_us:.3g} µs)" if context.launch_us else ""
    kernels = "kernel takes" if launches == 1 else f"{launches} kernels take"
    text = (
        f"Bound by launches and work on the host: the {kernels} {us:.4g} of the call's "
        f"{context.call_us:.4g} µs{launch}."
    )
    return Sentence(text=text, metrics=(ncu_metrics.DURATION,))
