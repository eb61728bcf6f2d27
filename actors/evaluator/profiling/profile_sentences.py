"""Reads a profile into six to ten sentences with numbers, by fixed rules.  Pure.

Each rule looks at some metrics and returns a sentence or None: where nothing is known, nothing is
said.  The last sentence is the bound that the numbers show (`kernel_bound`).  The sentences are
about the longest kernel, and the first and the last one about the whole call, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from actors.evaluator.profiling import ncu_metrics
from actors.evaluator.profiling.figure_text import number_text, ratio_text, share_text, size_text
from actors.evaluator.profiling.kernel_bound import (
    ATTAINABLE_DRAM,
    SHORT_US,
    bound_of,
    dram_share,
)
from actors.evaluator.profiling.ncu_metrics import (
    SECTOR_BYTES,
    STALLS,
    KernelMetrics,
    MeasuredCall,
    MeasuredKernel,
)
from protocol.values import Value

MAX_SENTENCES = 10
SHOWN_METRICS = 4  # of a sentence
SHOWN_KERNELS = 3  # in the list of a call's kernels
SECOND_KERNEL_SHARE = 0.25  # of the call's time: from here on its bound is told, too
LAUNCH_BOUND_SHARE = 0.5  # of the call's time: kernels that take less leave the rest to the host
WASTED_SECTORS = 0.9  # of the bytes of a sector: below it an access is told
MANY_L2_MISSES = 1.25  # times the least traffic: above it the caches' hit rates are told
CACHED_SHARE = 0.97  # of the least traffic: below it a part has not left the L2 cache
MANY_CONFLICTS = 0.1  # of the accesses to shared memory
DIVERGENT_THREADS = 28.0  # of 32: below it branches or idle lanes are told
MIN_TOLD_WAVES = 0.05  # fewer are told as idle multiprocessors
TAIL_WAVES = 8.0  # in more waves the last one matters little
MUCH = 0.5  # of a cache's peak
MIN_TOLD_BYTES = 1e6  # of DRAM traffic: less bounds nothing, and a ratio to the least says nothing
ALL_BUSY = 0.97  # of the multiprocessors: below it figures where blocks run are said to be such


class Sentence(Value, frozen=True, kw_only=True):
    """One sentence, and the metrics that it was read off."""

    text: str
    metrics: tuple[str, ...] = ()


class ProfileContext(Value, frozen=True, kw_only=True):
    """What is known of the call besides its profile."""

    call_us: float | None = None  # of the module, as the judge measured it
    # Of one call, as torch's profiler counts:
    launches: int | None = None
    device_us: float | None = None  # of all kernels together
    kernels: tuple[str, ...] = ()  # the longest first
    least_bytes: int | None = None  # inputs, parameters and outputs, each moved once
    copy_gb_s: float | None = None  # of a large copy on this device
    launch_us: float | None = None  # of one empty kernel, from the call until the device is idle


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
    whole = f" of a call of {context.call_us:.4g} µs" if context.call_us else ""
    if call.launches == 1 and not call.is_cut:
        return Sentence(text=f"One kernel, {name}: {call.us:.4g} µs{whole}.", metrics=metrics)
    shown = call.kernels[:SHOWN_KERNELS]
    rest = f" and {len(call.kernels) - len(shown) + call.other_kernels} more"
    more = rest if len(call.kernels) + call.other_kernels > len(shown) else ""
    if call.is_cut:  # the call's own time is not that of these launches
        parts = [f"{one.metrics.name} {one.metrics.us:.4g} µs{_count(one)}" for one in shown]
        text = f"{_launches(call, context)}{whole} were measured: {', '.join(parts)}{more}."
    else:
        parts = [f"{one.metrics.name} {one.total_us / call.us:.0%}{_count(one)}" for one in shown]
        kernels = f"{call.launches} kernels of a call take {call.us:.4g} µs{whole}"
        text = f"{kernels}: {', '.join(parts)}{more}."
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


def _traffic(
    kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext
) -> Sentence | None:
    metrics = kernel.metrics
    moved, rate = metrics.dram_bytes, metrics.dram_gb_s
    if moved is None or rate is None:
        return None
    read = metrics.figure(ncu_metrics.DRAM_READ) or 0.0
    text = (
        f"It moves {size_text(moved)} from and to DRAM ({size_text(read)} read) at "
        f"{_rate(metrics, rate, context)}"
    )
    whole = call.dram_bytes
    if whole is not None and not call.is_cut and not call.other_kernels:
        ratio = _against_least(whole, context.least_bytes)
        if call.launches > 1:
            text += f"; all kernels together move {size_text(whole)}{f', {ratio}' if ratio else ''}"
        elif ratio:
            text += f"; that is {ratio}"
    return Sentence(
        text=f"{text}.",
        metrics=(ncu_metrics.DRAM_READ, ncu_metrics.DRAM_WRITTEN, ncu_metrics.DRAM_SHARE),
    )


def _against_least(moved: float, least: int | None) -> str:
    if not least or max(moved, least) < MIN_TOLD_BYTES:
        return ""
    # Most of what is written last is still in the L2 cache when the kernel ends.
    cached = ", and the rest stays in the L2 cache" if moved < CACHED_SHARE * least else ""
    return f"{ratio_text(moved / least)} times the least ({size_text(least)}){cached}"


def _rate(metrics: KernelMetrics, rate: float, context: ProfileContext) -> str:
    if context.copy_gb_s:
        share = f"{share_text(rate / context.copy_gb_s)} of the measured copy rate"
        return f"{rate:.4g} GB/s, {share} ({context.copy_gb_s:.4g})"
    of_peak = metrics.share(ncu_metrics.DRAM_SHARE)
    if of_peak is None:
        return f"{rate:.4g} GB/s"
    return (
        f"{rate:.4g} GB/s, {of_peak:.0%} of the peak (a copy reaches about {ATTAINABLE_DRAM:.0%})"
    )


def _caches(kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext) -> Sentence | None:
    """Tell hit rates where they matter: more traffic than the least, or a busy cache."""
    metrics = kernel.metrics
    l1, l2 = metrics.share(ncu_metrics.L1_HITS), metrics.share(ncu_metrics.L2_HITS)
    if l1 is None or l2 is None:
        return None
    moved = call.dram_bytes
    if max(moved or 0.0, metrics.dram_bytes or 0.0) < MIN_TOLD_BYTES and metrics.us < SHORT_US:
        return None  # a short kernel on little data: its launch is what takes time
    is_much = bool(
        context.least_bytes
        and moved
        and moved > MANY_L2_MISSES * context.least_bytes
        and moved - context.least_bytes > MIN_TOLD_BYTES
    )
    l1_busy = metrics.share(ncu_metrics.L1_SHARE) or 0.0
    l2_busy = metrics.share(ncu_metrics.L2_SHARE) or 0.0
    # L2 is as busy as DRAM where everything comes from there: that says nothing.
    is_l2_busy = l2_busy >= MUCH and (dram_share(metrics, context.copy_gb_s) or 0.0) < MUCH
    if not is_much and l1_busy < MUCH and not is_l2_busy:
        return None
    text = (
        f"Of the requests {min(l1, 1.0):.0%} are answered by L1 and {min(l2, 1.0):.0%} of the rest "
        f"by L2; L1 with shared memory is {l1_busy:.0%} busy, L2 {l2_busy:.0%}"
    )
    again = ": data is read from DRAM more than once" if is_much else ""
    used = (ncu_metrics.L1_HITS, ncu_metrics.L2_HITS, ncu_metrics.L1_SHARE, ncu_metrics.L2_SHARE)
    return Sentence(text=f"{text}{again}.", metrics=used)


def _accesses(
    kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext
) -> Sentence | None:
    """Tell loads and stores that fetch sectors of which they use a part."""
    metrics = kernel.metrics
    parts = [
        _access(
            metrics,
            "load",
            ncu_metrics.LOAD_REQUESTS,
            ncu_metrics.LOAD_SECTORS,
            ncu_metrics.LOAD_BYTES_A_SECTOR,
        ),
        _access(
            metrics,
            "store",
            ncu_metrics.STORE_REQUESTS,
            ncu_metrics.STORE_SECTORS,
            ncu_metrics.STORE_BYTES_A_SECTOR,
        ),
    ]
    told = [part for part in parts if part]
    if not told:
        return None
    text = f"{' '.join(told)} Neighbouring threads should use neighbouring addresses."
    used = (ncu_metrics.LOAD_SECTORS, ncu_metrics.LOAD_REQUESTS, ncu_metrics.LOAD_BYTES_A_SECTOR)
    return Sentence(text=text, metrics=used)


def _access(metrics: KernelMetrics, what: str, requests: str, sectors: str, used: str) -> str:
    count, fetched = metrics.figure(requests), metrics.figure(sectors)
    bytes_used = metrics.figure(used)
    if not count or not fetched or not bytes_used or fetched < 0.01 * _all_sectors(metrics):
        return ""
    share = bytes_used / SECTOR_BYTES
    if share >= WASTED_SECTORS:
        return ""
    each = fetched / count
    return (
        f"A warp's {what} touches {each:.3g} sectors of {SECTOR_BYTES} bytes where "
        f"{max(1.0, each * share):.2g} would do: {share:.0%} of the bytes are used."
    )


def _all_sectors(metrics: KernelMetrics) -> float:
    return metrics.sum_of(ncu_metrics.LOAD_SECTORS, ncu_metrics.STORE_SECTORS) or 0.0


def _compute(
    kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext
) -> Sentence | None:
    pipes = list(kernel.metrics.pipes.items())
    issue = kernel.metrics.share(ncu_metrics.ISSUE_SHARE)
    if not pipes or issue is None:
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
        text += f", {size_text(shared)} of shared memory a block)" if shared else ")"
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
    if count and grid < count:
        text += f": {count - grid:.0f} of {count:.0f} multiprocessors never have a block"
    elif 1 < waves < TAIL_WAVES:
        rest = waves - int(waves)
        text += f": the last wave fills {rest:.0%} of the card" if rest else ""
    if busy is not None and not (count and grid < count):
        text += f"; on average {busy:.0%} of the multiprocessors have a block"
    used = ncu_metrics.GRID, ncu_metrics.BLOCK, ncu_metrics.WAVES, ncu_metrics.SM_ACTIVE
    return Sentence(text=f"{text}.", metrics=used)


def _spills(kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext) -> Sentence | None:
    moved = kernel.metrics.local_bytes
    if not moved:
        return None
    text = (
        f"Local memory (spilled registers, or arrays with computed indices): {size_text(moved)} "
        "are loaded and stored."
    )
    return Sentence(
        text=text, metrics=(ncu_metrics.LOCAL_LOAD_SECTORS, ncu_metrics.LOCAL_STORE_SECTORS)
    )


def _conflicts(
    kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext
) -> Sentence | None:
    share = kernel.metrics.conflict_share
    conflicts = kernel.metrics.figure(ncu_metrics.SHARED_CONFLICTS)
    if share is None or conflicts is None or share < MANY_CONFLICTS:
        return None
    text = (
        f"{share:.0%} of the accesses to shared memory repeat others because of bank conflicts "
        f"({number_text(conflicts)})."
    )
    return Sentence(
        text=text, metrics=(ncu_metrics.SHARED_CONFLICTS, ncu_metrics.SHARED_WAVEFRONTS)
    )


def _waits(kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext) -> Sentence | None:
    stalls = list(kernel.metrics.stalls.items())[:3]
    if not stalls:
        return None
    parts = [f"{STALLS[reason]} ({reason}, {share:.0%})" for reason, share in stalls]
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
    *(_times, _traffic, _accesses, _spills, _conflicts, _compute),
    *(_occupancy, _grid, _waits, _caches, _divergence),
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
        found.append(Sentence(text=f"Bound by {bound.text}.", metrics=bound.metrics))
    return found


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
