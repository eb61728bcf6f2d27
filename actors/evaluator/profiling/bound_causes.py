"""What in a kernel keeps the unit busy that bounds it, where its metrics show that.  Pure."""

from __future__ import annotations

from actors.evaluator.profiling import ncu_metrics
from actors.evaluator.profiling.ncu_metrics import SECTOR_BYTES, KernelMetrics
from protocol.values import Value

MUCH_LOCAL = 0.4  # of the sectors that loads and stores touch
MANY_ATOMICS = 0.25  # of the sectors in L2
SOME_ATOMICS = 0.1  # where no unit is busy: few on one address already take turns
SCATTERED = 1.5  # sectors a request: with fewer there is nothing to gather
MANY_CONFLICTS = 0.3  # of the turns of accesses to shared memory
FEW_THREADS = 16.0  # of a warp's 32, on average over its instructions
FEW_USED = 0.6  # of the bytes of the sectors that loads or stores touch
MOST = 0.5  # of the sectors of loads and stores


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
        f"{moved / (moved + others):.0%} of the sectors that it loads and stores are local memory "
        "(spilled registers, or arrays with computed indices)"
    )
    return Cause(text=text, metrics=local)


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
    text = f"{share:.0%} of the turns of accesses to shared memory are bank conflicts"
    metrics = ncu_metrics.SHARED_ACCESSES
    return Cause(text=text, metrics=metrics)


def _unused_bytes(kernel: KernelMetrics) -> Cause | None:
    """Return loads or stores of whose sectors a small part is used, if they are most of all."""
    accesses = {
        "loads": ncu_metrics.LOADS,
        "stores": ncu_metrics.STORES,
    }
    whole = kernel.sum_of(ncu_metrics.LOAD_SECTORS, ncu_metrics.STORE_SECTORS)
    for name, (requests, sectors, used) in accesses.items():
        count, bytes_used = kernel.figure(sectors), kernel.figure(used)
        if not whole or not count or not bytes_used or count < MOST * whole:
            continue
        if count < SCATTERED * (kernel.figure(requests) or 0.0):
            continue
        share = bytes_used / SECTOR_BYTES
        if share < FEW_USED:
            text = f"of the bytes that its {name} touch {share:.0%} are used (not coalesced)"
            return Cause(text=text, metrics=(sectors, used))
    return None
