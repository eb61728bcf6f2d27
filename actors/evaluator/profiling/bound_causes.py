"""What in a kernel keeps the unit busy that bounds it, where its metrics show that.  Pure."""

from __future__ import annotations

from actors.evaluator.profiling import ncu_metrics
from actors.evaluator.profiling.ncu_metrics import SECTOR_BYTES, KernelMetrics
from protocol.figure_text import bytes_text, number_text, rate_text
from protocol.values import Value

MUCH_LOCAL = 0.4  # of the sectors that loads and stores touch
MANY_ATOMICS = 0.25  # of the sectors in L2
SOME_ATOMICS = 0.1  # where no unit is busy: few on one address already take turns
SCATTERED = 1.5  # sectors a request: with fewer there is nothing to gather
MANY_CONFLICTS = 0.3  # of the turns of accesses to shared memory
FEW_THREADS = 16.0  # of a warp's 32, on average over its instructions
FEW_USED = 0.6  # of the bytes of the sectors that loads or stores touch
MOST = 0.5  # of the sectors of loads and stores
WIDEST_ELEMENT = 16  # bytes that a thread may skip as the rest of an element
MOST_REGISTERS, REGISTERS_A_BLOCK = 255, 65_536
NEARLY_ALL = 0.9  # of the possible registers: with fewer none is spilled
L2_SECTORS = (
    *(ncu_metrics.L2_READS, ncu_metrics.L2_WRITES),
    *(ncu_metrics.L2_ATOMICS, ncu_metrics.L2_REDUCTIONS),
)


class Cause(Value, frozen=True, kw_only=True):
    """What keeps a unit busy, and the metrics that show it."""

    text: str
    metrics: tuple[str, ...]


def cause_of(kernel: KernelMetrics, kind: str) -> Cause | None:
    """Return the cause of a bound of this `kind`; None where the metrics show none."""
    if kind in ("compute", "issue"):
        return _idle_threads(kernel)
    if kind not in ("memory", "L1", "L2", "L2 slice", "load/store", "latency"):
        return None
    found = _local_memory(kernel)
    if found is None and kind in ("memory", "L2", "L2 slice", "latency"):
        found = _atomics(kernel, kind)
    if found is None and kind == "L1":
        found = _bank_conflicts(kernel)
    if found is None and kind in ("memory", "L1", "L2"):
        found = _unused_bytes(kernel)
    return found or (_idle_threads(kernel) if kind not in ("memory", "L2", "L2 slice") else None)


def _idle_threads(kernel: KernelMetrics) -> Cause | None:
    active = kernel.figure(ncu_metrics.ACTIVE_THREADS)
    if not active or active > FEW_THREADS:
        return None
    text = (
        f"on average {active:.1f} of a warp's 32 threads take part in an instruction (branches "
        "that its threads take differently, or idle threads)"
    )
    return Cause(text=text, metrics=(ncu_metrics.ACTIVE_THREADS,))


def _local_memory(kernel: KernelMetrics) -> Cause | None:
    local = (ncu_metrics.LOCAL_LOAD_SECTORS, ncu_metrics.LOCAL_STORE_SECTORS)
    moved = kernel.sum_of(*local)
    others = kernel.sum_of(ncu_metrics.LOAD_SECTORS, ncu_metrics.STORE_SECTORS)
    if not moved or others is None or moved < MUCH_LOCAL * (moved + others):
        return None
    text = (
        f"{moved / (moved + others):.0%} of the sectors that it loads and stores are local memory, "
        f"{bytes_text(moved * SECTOR_BYTES)}: {local_memory_text(kernel)}"
    )
    return Cause(text=text, metrics=local)


def local_memory_text(kernel: KernelMetrics) -> str:
    """Return what local memory is for: registers are spilled only where no more are possible."""
    registers, block = map(kernel.figure, (ncu_metrics.REGISTERS, ncu_metrics.BLOCK))
    if not registers or not block:
        return "spilled registers, or arrays with computed indices"
    possible = min(MOST_REGISTERS, REGISTERS_A_BLOCK // block)
    told = f"at {registers:.0f} of {possible:.0f} registers a thread"
    if registers < NEARLY_ALL * possible:
        return f"arrays with computed indices ({told} only a launch bound makes it spill)"
    return f"spilled registers, {told}, or arrays with computed indices"


def _atomics(kernel: KernelMetrics, kind: str) -> Cause | None:
    least = SOME_ATOMICS if kind == "latency" else MANY_ATOMICS
    atomic = (ncu_metrics.L2_ATOMICS, ncu_metrics.L2_REDUCTIONS)
    count = kernel.sum_of(*atomic)
    others = kernel.sum_of(ncu_metrics.L2_READS, ncu_metrics.L2_WRITES)
    if not count or others is None or count < least * (count + others):
        return None
    share = count / (count + others)
    text = f"{share:.0%} of the sectors that reach L2 are atomic operations"
    if kind in ("L2 slice", "latency"):
        text += ", of which those on one address wait for each other"
    return Cause(text=text, metrics=atomic)


def _bank_conflicts(kernel: KernelMetrics) -> Cause | None:
    share = kernel.conflict_share
    if share is None or share < MANY_CONFLICTS:
        return None
    return Cause(text=conflicts_text(kernel, share), metrics=ncu_metrics.SHARED_ACCESSES)


def conflicts_text(kernel: KernelMetrics, share: float) -> str:
    """Return what bank conflicts add: a `share` of the wavefronts of shared memory."""
    wavefronts = kernel.figure(ncu_metrics.SHARED_TURNS) or 0.0
    return (
        f"bank conflicts, {share:.0%} of the {number_text(wavefronts)} wavefronts of shared memory "
        f"({1 / max(1 - share, 0.01):.2g}-way on average)"
    )


def _unused_bytes(kernel: KernelMetrics) -> Cause | None:
    """Return loads or stores of whose sectors a small part is used, if they are most of all."""
    accesses = {
        "loads": ncu_metrics.LOADS,
        "stores": ncu_metrics.STORES,
    }
    whole = kernel.sum_of(ncu_metrics.LOAD_SECTORS, ncu_metrics.STORE_SECTORS)
    for name, (requests, sectors, used) in accesses.items():
        asked, count, bytes_used = map(kernel.figure, (requests, sectors, used))
        if not whole or not asked or not count or not bytes_used:
            continue
        if count < MOST * whole or count < SCATTERED * asked:
            continue
        share = bytes_used / SECTOR_BYTES
        if share < FEW_USED:
            text = access_text(name, count / asked, share)
            return Cause(text=text, metrics=(requests, sectors, used))
    return None


def access_text(name: str, sectors: float, share: float) -> str:
    """Return how many sectors a warp's `name` touch, of whose bytes it uses a `share`.

    The sectors are as many as the bytes from one thread to the next, which may be one element's.
    """
    text = f"a warp's {name} touch {sectors:.3g} sectors of {SECTOR_BYTES} bytes"
    if sectors <= WIDEST_ELEMENT:
        return (
            f"{text} and use {share:.0%} of them: too many, unless these are parts of elements of "
            f"{sectors:.2g} bytes"
        )
    return (
        f"{text} where {max(1.0, sectors * share):.2g} would do and use {share:.0%} of them: not "
        "coalesced, neighbouring threads should use neighbouring addresses"
    )


def l2_traffic(kernel: KernelMetrics, read_gb_s: float | None) -> Cause | None:
    """Return the bytes that pass L2, beside the rate of reads that was measured."""
    sectors = kernel.sum_of(*L2_SECTORS)
    if not sectors or not read_gb_s or not kernel.us:
        return None
    moved = sectors * SECTOR_BYTES
    text = (
        f"{bytes_text(moved)} pass it at {rate_text(moved / kernel.us / 1e3)} GB/s (reads alone "
        f"were measured at {rate_text(read_gb_s)})"
    )
    return Cause(text=text, metrics=L2_SECTORS)
