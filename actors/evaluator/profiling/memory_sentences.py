"""The sentences about a kernel's memory: DRAM, caches, accesses, local and shared memory.  Pure.

Each rule returns None where nothing is known or nothing is worth telling.
"""

from __future__ import annotations

from actors.evaluator.profiling import ncu_metrics
from actors.evaluator.profiling.kernel_bound import ATTAINABLE_DRAM, SHORT_US, dram_share
from actors.evaluator.profiling.ncu_metrics import (
    SECTOR_BYTES,
    KernelMetrics,
    MeasuredCall,
    MeasuredKernel,
)
from actors.evaluator.profiling.sentence import ProfileContext, Sentence
from protocol.figure_text import bytes_text, number_text, ratio_text, share_text

WASTED_SECTORS = 0.9  # of the sectors of an access: where fewer would do, it is told
MANY_L2_MISSES = 1.25  # times the least traffic: above it the caches' hit rates are told
CACHED_SHARE = 0.97  # of the least traffic: below it a part has not left the L2 cache
MANY_CONFLICTS = 0.1  # of the turns of accesses to shared memory
MUCH = 0.5  # of a cache's peak
MIN_TOLD_BYTES = 1e6  # of DRAM traffic: less bounds nothing, and a ratio to the least says nothing


def dram_traffic(
    kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext
) -> Sentence | None:
    """Tell bytes from and to DRAM, their rate, and the least that the task needs."""
    metrics = kernel.metrics
    moved, rate = metrics.dram_bytes, metrics.dram_gb_s
    if moved is None or rate is None:
        return None
    read = metrics.figure(ncu_metrics.DRAM_READ) or 0.0
    text = (
        f"It moves {bytes_text(moved)} from and to DRAM ({bytes_text(read)} read) at "
        f"{_rate(metrics, rate, context)}"
    )
    whole = call.dram_bytes
    if whole is not None and not call.is_cut and not call.other_kernels:
        ratio = _against_least(whole, context.least_bytes)
        if call.launches > 1:
            text += (
                f"; all kernels together move {bytes_text(whole)}{f', {ratio}' if ratio else ''}"
            )
        elif ratio:
            text += f"; that is {ratio}"
    return Sentence(
        text=f"{text}.",
        metrics=(ncu_metrics.DRAM_READ, ncu_metrics.DRAM_WRITTEN, ncu_metrics.DRAM_SHARE),
    )


def _against_least(moved: float, least: int | None) -> str:
    if not least or max(moved, least) < MIN_TOLD_BYTES:
        return ""
    named = f"the least ({bytes_text(least)}: inputs, parameters and outputs once)"
    if moved < CACHED_SHARE * least:
        # Most of what is written last is still in the L2 cache when the kernel ends.
        return f"less than {named}: the rest stays in the L2 cache, or is not needed"
    ratio = ratio_text(moved / least)
    return f"about {named}" if ratio == "1" else f"{ratio} times {named}"


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


def cache_hits(
    kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext
) -> Sentence | None:
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
        f"L2 is {l2_busy:.0%} busy, L1 with shared memory {l1_busy:.0%}; of the requests "
        f"{min(l1, 1.0):.0%} are answered by L1 and {min(l2, 1.0):.0%} of the rest by L2"
    )
    again = ": data passes DRAM again, or intermediate results do" if is_much else ""
    used = (ncu_metrics.L1_HITS, ncu_metrics.L2_HITS, ncu_metrics.L1_SHARE, ncu_metrics.L2_SHARE)
    return Sentence(text=f"{text}{again}.", metrics=used)


def unused_bytes(
    kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext
) -> Sentence | None:
    """Tell loads and stores that fetch sectors of which they use a part."""
    metrics = kernel.metrics
    accesses = {"load": ncu_metrics.LOADS, "store": ncu_metrics.STORES}
    parts = [_access(metrics, what, *named) for what, named in accesses.items()]
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
    share, each = bytes_used / SECTOR_BYTES, fetched / count
    needed = max(1.0, each * share)
    if needed >= WASTED_SECTORS * each:
        return ""
    return (
        f"A warp's {what} touches {each:.3g} sectors of {SECTOR_BYTES} bytes where {needed:.2g} "
        f"would do: {share:.0%} of the bytes are used."
    )


def _all_sectors(metrics: KernelMetrics) -> float:
    return metrics.sum_of(ncu_metrics.LOAD_SECTORS, ncu_metrics.STORE_SECTORS) or 0.0


def local_memory(
    kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext
) -> Sentence | None:
    """Tell spilled registers and arrays with computed indices."""
    moved = kernel.metrics.local_bytes
    if not moved:
        return None
    others = kernel.metrics.sum_of(ncu_metrics.LOAD_SECTORS, ncu_metrics.STORE_SECTORS)
    whole = moved + SECTOR_BYTES * (others or 0.0)
    share = f", {share_text(moved / whole)} of all that it loads and stores" if others else ""
    text = (
        f"Local memory (spilled registers, or arrays with computed indices): {bytes_text(moved)} "
        f"are loaded and stored{share}."
    )
    return Sentence(
        text=text, metrics=(ncu_metrics.LOCAL_LOAD_SECTORS, ncu_metrics.LOCAL_STORE_SECTORS)
    )


def bank_conflicts(
    kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext
) -> Sentence | None:
    """Tell turns that accesses to shared memory take because of bank conflicts."""
    share = kernel.metrics.conflict_share
    turns = kernel.metrics.figure(ncu_metrics.SHARED_TURNS)
    if share is None or turns is None or share < MANY_CONFLICTS:
        return None
    text = (
        f"Accesses to shared memory take {number_text(turns)} turns, of which bank conflicts are "
        f"{share:.0%}."
    )
    return Sentence(text=text, metrics=ncu_metrics.SHARED_ACCESSES)
