"""The sentences about a kernel's memory: DRAM, caches, accesses, local and shared memory.  Pure.

Each rule returns None where nothing is known or nothing is worth telling.
"""

from __future__ import annotations

from actors.evaluator.profiling import ncu_metrics
from actors.evaluator.profiling.bound_causes import (
    access_text,
    conflicts_text,
    local_memory_text,
)
from actors.evaluator.profiling.kernel_bound import ATTAINABLE_DRAM, SHORT_US, dram_share
from actors.evaluator.profiling.ncu_metrics import (
    SECTOR_BYTES,
    KernelMetrics,
    MeasuredCall,
    MeasuredKernel,
)
from actors.evaluator.profiling.sentence import ProfileContext, Sentence
from protocol.figure_text import bytes_text, ratio_text, share_text

WASTED_SECTORS = 0.9  # of the sectors of an access: where fewer would do, it is told
MANY_L2_MISSES = 1.25  # times the least traffic: above it the caches' hit rates are told
CACHED_SHARE = 0.97  # of the least traffic: below it a part has not left the L2 cache
MANY_CONFLICTS = 0.1  # of the wavefronts of shared memory
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
            text += f"; all kernels together move {bytes_text(whole)}{'; ' * bool(ratio)}{ratio}"
        elif ratio:
            text += f"; {ratio}"
    return Sentence(
        text=f"{text}.",
        metrics=(ncu_metrics.DRAM_READ, ncu_metrics.DRAM_WRITTEN, ncu_metrics.DRAM_SHARE),
    )


def _against_least(moved: float, least: int | None) -> str:
    if not least or max(moved, least) < MIN_TOLD_BYTES:
        return ""
    if moved < CACHED_SHARE * least:
        # Most of what is written last is still in the L2 cache when the kernel ends.
        rest = "the rest stays in the L2 cache, or is not needed"
        return f"inputs, parameters and outputs have {bytes_text(least)}: {rest}"
    ratio = ratio_text(moved / least)
    named = f"the {bytes_text(least)} of inputs, parameters and outputs"
    return f"that is about {named}" if ratio == "1" else f"that is {ratio} times {named}"


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
    l1_busy = metrics.launch_share(ncu_metrics.L1_SHARE) or 0.0
    cache_busy = l1_busy - (metrics.shared_memory_share or 0.0)
    l2_busy = metrics.share(ncu_metrics.L2_SHARE) or 0.0
    # L2 is as busy as DRAM where everything comes from there: that says nothing.
    is_l2_busy = l2_busy >= MUCH and (dram_share(metrics, context.copy_gb_s) or 0.0) < MUCH
    if not is_much and cache_busy < MUCH and not is_l2_busy:
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
    accesses = {"loads": ncu_metrics.LOADS, "stores": ncu_metrics.STORES}
    told = {what: _access(kernel.metrics, what, *named) for what, named in accesses.items()}
    used = [metric for what, text in told.items() if text for metric in accesses[what]]
    text = " ".join(_as_sentence(text) for text in told.values() if text)
    return Sentence(text=text, metrics=tuple(used)) if text else None


def _access(metrics: KernelMetrics, what: str, requests: str, sectors: str, used: str) -> str:
    count, fetched = metrics.figure(requests), metrics.figure(sectors)
    bytes_used = metrics.figure(used)
    if not count or not fetched or not bytes_used or fetched < 0.01 * _all_sectors(metrics):
        return ""
    share, each = bytes_used / SECTOR_BYTES, fetched / count
    if max(1.0, each * share) >= WASTED_SECTORS * each:
        return ""
    return access_text(what, each, share)


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
        f"Of local memory {bytes_text(moved)} are loaded and stored{share}: "
        f"{local_memory_text(kernel.metrics)}."
    )
    return Sentence(
        text=text, metrics=(ncu_metrics.LOCAL_LOAD_SECTORS, ncu_metrics.LOCAL_STORE_SECTORS)
    )


def bank_conflicts(
    kernel: MeasuredKernel, call: MeasuredCall, context: ProfileContext
) -> Sentence | None:
    """Tell the wavefronts of shared memory that bank conflicts add."""
    share = kernel.metrics.conflict_share
    if share is None or share < MANY_CONFLICTS:
        return None
    text = _as_sentence(conflicts_text(kernel.metrics, share))
    return Sentence(text=text, metrics=ncu_metrics.SHARED_ACCESSES)


def _as_sentence(cause: str) -> str:
    """Return a cause, which also stands within the sentence of a bound, as one of its own."""
    return f"{cause[0].upper()}{cause[1:]}."
