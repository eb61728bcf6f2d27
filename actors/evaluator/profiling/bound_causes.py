"""What in a kernel keeps the unit busy that bounds it, where its metrics show that.  Pure."""

from __future__ import annotations

from actors.evaluator.profiling import ncu_metrics
from actors.evaluator.profiling.ncu_metrics import SECTOR_BYTES, KernelMetrics
from protocol.values import Value

MUCH_LOCAL = 0.4  # of the sectors that loads and stores touch
MANY_ATOMICS = 0.25  # of the sectors in L2
MANY_CONFLICTS = 0.3  # of the accesses to shared memory
FEW_USED = 0.6  # of the bytes of the sectors that loads or stores touch
MOST = 0.5  # of the sectors of loads and stores


class Cause(Value, frozen=True, kw_only=True):
    """What keeps a unit busy, and the metrics that show it."""

    text: str
    metrics: tuple[str, ...]


def cause_of(kernel: KernelMetrics, kind: str) -> Cause | None:
    """Return the cause of a bound of this `kind`; None where the metrics show none."""
    if kind not in ("memory", "L1", "L2", "latency"):
        return None
    found = _local_memory(kernel) or (_atomics(kernel) if kind != "L1" else None)
    if found is None and kind == "L1":
        found = _bank_conflicts(kernel)
    if found is None and kind != "latency":
        found = _unused_bytes(kernel)
    return found


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


def _atomics(kernel: KernelMetrics) -> Cause | None:
    atomic = (ncu_metrics.L2_ATOMICS, ncu_metrics.L2_REDUCTIONS)
    count = kernel.sum_of(*atomic)
    others = kernel.sum_of(ncu_metrics.L2_READS, ncu_metrics.L2_WRITES)
    if not count or others is None or count < MANY_ATOMICS * (count + others):
        return None
    share = count / (count + others)
    text = f"{share:.0%} of the sectors that reach L2 are atomic operations, which wait for others"
    return Cause(text=f"{text} on the same address", metrics=atomic)


def _bank_conflicts(kernel: KernelMetrics) -> Cause | None:
    share = kernel.conflict_share
    if share is None or share < MANY_CONFLICTS:
        return None
    text = f"{share:.0%} of the accesses to shared memory repeat others because of bank conflicts"
    metrics = (ncu_metrics.SHARED_CONFLICTS, ncu_metrics.SHARED_WAVEFRONTS)
    return Cause(text=text, metrics=metrics)


def _unused_bytes(kernel: KernelMetrics) -> Cause | None:
    """Return loads or stores of whose sectors a small part is used, if they are most of all."""
    accesses = {
        "loads": (ncu_metrics.LOAD_SECTORS, ncu_metrics.LOAD_BYTES_A_SECTOR),
        "stores": (ncu_metrics.STORE_SECTORS, ncu_metrics.STORE_BYTES_A_SECTOR),
    }
    whole = kernel.sum_of(*(sectors for sectors, _used in accesses.values()))
    for name, (sectors, used) in accesses.items():
        count, bytes_used = kernel.figure(sectors), kernel.figure(used)
        if not whole or not count or not bytes_used or count < MOST * whole:
            continue
        share = bytes_used / SECTOR_BYTES
        if share < FEW_USED:
            text = f"of the bytes that its {name} touch {share:.0%} are used (not coalesced)"
            return Cause(text=text, metrics=(sectors, used))
    return None
