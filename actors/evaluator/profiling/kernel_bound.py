"""What bounds a kernel, by fixed rules over its metrics.  Pure.

The rules, in this order (`docs/cuda.md` has them as a table):

1. The busiest unit decides if it is busy for `BUSY` of the time or more: DRAM (against the rate of
   a copy), an arithmetic pipe, the busier one of the L1 cache with shared memory and the L2 cache,
   one slice of the L2 cache that is much busier than all of them, the load/store pipe, or the issue
   slots.  Among the units within `NEAR` of the busiest one the first in this order is named.
2. A kernel shorter than `SHORT_US`, or one of at most one wave whose multiprocessors have no block
   for less than that: its launch.
3. Blocks for fewer than `FEW_BUSY_MULTIPROCESSORS` of them all: too little parallel work.
4. A pipe or the issue slots that are busy where blocks run, on multiprocessors that have none for
   much of the time: the tail of the grid.  Multiprocessors without a block for more than a quarter
   of the time: the tail, or blocks of unequal length.
5. Anything else: latency, with the busiest unit and what the warps wait for.

`bound_causes` adds what keeps memory or a cache busy.
"""

from __future__ import annotations

from typing import Literal

from msgspec import structs

from actors.evaluator.profiling import ncu_metrics
from actors.evaluator.profiling.bound_causes import cause_of
from actors.evaluator.profiling.ncu_metrics import KernelMetrics
from protocol.facts import UnitShare
from protocol.values import Value

BoundKind = Literal[
    "memory",
    "compute",
    "L1",
    "L2",
    "L2 slice",
    "load/store",
    "issue",
    "launch",
    "parallelism",
    "tail",
    "latency",
]
BUSY = 0.6
ALSO_BUSY = 0.5  # another unit that is named beside the first
NEAR = 0.1
ATTAINABLE_DRAM = 0.92  # of the peak; a copy reaches about this
FULL_RATE = 0.85  # of DRAM's attainable rate: below it the time at the full rate is told
SHORT_US = 4.0  # an empty kernel takes about 2 under ncu
FEW_BUSY_MULTIPROCESSORS = 0.75
MOST_SHARED = 0.6  # of what keeps the L1 unit busy: accesses to shared memory
L2_SECTORS = (
    *(ncu_metrics.L2_READS, ncu_metrics.L2_WRITES),
    *(ncu_metrics.L2_ATOMICS, ncu_metrics.L2_REDUCTIONS),
)
SECTOR_CYCLES = 16  # more than any access keeps a slice of L2 busy
LONG_WAIT = 0.1  # a stall reason below this share is not named as the cause
# Reasons that say nothing about what to change.
_ORDINARY = frozenset(["not_selected", "misc", "sleeping"])


class Bound(Value, frozen=True, kw_only=True):
    """What bounds a kernel, and the metrics that show it."""

    kind: BoundKind
    text: str
    metrics: tuple[str, ...] = ()


def bound_of(kernel: KernelMetrics, copy_gb_s: float | None = None) -> Bound | None:
    """Return what bounds `kernel`; None where too little was measured.

    `copy_gb_s`: the rate of a large copy on this device, which is the attainable rate of DRAM.
    """
    found = _busy_unit(kernel, copy_gb_s)
    for rule in (_launch, _few_blocks, _tail_of_busy_pipe, _idle_multiprocessors):
        found = found or rule(kernel)
    found = found or _latency(kernel, copy_gb_s)
    cause = cause_of(kernel, found.kind) if found is not None else None
    if found is None or cause is None:
        return found
    return structs.replace(
        found, text=f"{found.text}; {cause.text}", metrics=(*found.metrics, *cause.metrics)
    )


def unit_shares(kernel: KernelMetrics, copy_gb_s: float | None) -> tuple[UnitShare, ...]:
    """Return how busy DRAM and the tensor cores are, where that is known and not nothing."""
    has_block = kernel.busy_multiprocessors or 1.0
    products = kernel.pipes.get(ncu_metrics.TENSOR_CORES)
    shares = {
        "DRAM": dram_share(kernel, copy_gb_s),
        ncu_metrics.TENSOR_CORES: products and products * has_block,
    }
    known = {unit: share for unit, share in shares.items() if share}
    return tuple(UnitShare(unit=unit, share=round(share, 4)) for unit, share in known.items())


def dram_share(kernel: KernelMetrics, copy_gb_s: float | None) -> float | None:
    """Return DRAM's rate as a share of the attainable one."""
    of_peak, rate = kernel.share(ncu_metrics.DRAM_SHARE), kernel.dram_gb_s
    if copy_gb_s and rate is not None:
        return rate / copy_gb_s
    return None if of_peak is None else of_peak / ATTAINABLE_DRAM


class _Unit(Value, frozen=True, kw_only=True):
    """A unit of the device, and how busy it is over the whole launch."""

    kind: BoundKind
    name: str
    share: float
    metrics: tuple[str, ...]

    def readable(self) -> str:
        """Return the unit as a bound, for people."""
        match self.kind:
            case "memory":
                return f"memory: DRAM works at {self.share:.0%} of the rate that a copy reaches"
            case "L1":
                return f"{self.name}, busy for {self.share:.0%} of the time"
            case "load/store":
                return (
                    f"load and store instructions, which keep their pipe busy for {self.share:.0%} "
                    "of the time"
                )
            case "L2":
                return f"the L2 cache, at {self.share:.0%} of its peak"
            case "L2 slice":
                return (
                    f"{self.name}, at {self.share:.0%} of its peak: many accesses to few addresses "
                    "take turns there"
                )
            case "issue":
                return (
                    "compute: the number of instructions, which fill "
                    f"{self.share:.0%} of the issue slots"
                )
            case _:
                verb = "are" if self.name.endswith("s") else "is"
                return f"compute: the {self.name} {verb} busy for {self.share:.0%} of the time"


def _units(kernel: KernelMetrics, copy_gb_s: float | None) -> list[_Unit]:
    """Return the known units in the order of precedence."""
    has_block = kernel.busy_multiprocessors or 1.0
    dram_metrics = (ncu_metrics.DRAM_SHARE, ncu_metrics.DRAM_READ, ncu_metrics.DRAM_WRITTEN)
    issue, pipes = kernel.share(ncu_metrics.ISSUE_SHARE), kernel.pipes
    l1, l2 = kernel.share(ncu_metrics.L1_SHARE), kernel.share(ncu_metrics.L2_SHARE)
    l1 = l1 and l1 * has_block
    caches: list[tuple[BoundKind, str, float | None, tuple[str, ...]]] = [
        ("L1", _l1_name(kernel), l1, (ncu_metrics.L1_SHARE, ncu_metrics.SHARED_WAVEFRONTS)),
        ("L2", "the L2 cache", l2, (ncu_metrics.L2_SHARE,)),
    ]
    slice_metrics = (ncu_metrics.L2_SLICE_SHARE, ncu_metrics.L2_SHARE)
    known: list[tuple[BoundKind, str, float | None, tuple[str, ...]]] = [
        ("memory", "DRAM", dram_share(kernel, copy_gb_s), dram_metrics),
        *(
            ("compute", name, share * has_block, _pipe_metrics(name))
            for name, share in pipes.items()
            if name != ncu_metrics.PIPES[ncu_metrics.LSU_PIPE]
        ),
        # What the L1 cache does not have keeps it as busy as L2, and less so than its own work.
        *sorted(caches, key=lambda cache: -(cache[2] or 0.0)),
        ("L2 slice", "one slice of the L2 cache", _busy_slice(kernel), slice_metrics),
        *(
            ("load/store", name, share * has_block, (ncu_metrics.LSU_PIPE,))
            for name, share in pipes.items()
            if name == ncu_metrics.PIPES[ncu_metrics.LSU_PIPE]
        ),
        ("issue", "issue slots", issue and issue * has_block, (ncu_metrics.ISSUE_SHARE,)),
    ]
    return [
        _Unit(kind=kind, name=name, share=share, metrics=metrics)
        for kind, name, share, metrics in known
        if share is not None
    ]


def _busy_slice(kernel: KernelMetrics) -> float | None:
    """Return how busy the busiest slice of L2 is, if it is much busier than all together.

    And if the kernel's sectors can keep a slice so busy: one of a kernel with 2,000 sectors was
    told to be at 99 %.
    """
    one, whole = kernel.share(ncu_metrics.L2_SLICE_SHARE), kernel.share(ncu_metrics.L2_SHARE)
    if one is None or whole is None or one <= whole + NEAR:
        return None
    sectors, cycles = kernel.sum_of(*L2_SECTORS), kernel.figure(ncu_metrics.SM_ELAPSED)
    if sectors is not None and cycles is not None and sectors * SECTOR_CYCLES < one * cycles:
        return None
    return one


def _l1_name(kernel: KernelMetrics) -> str:
    """Return what the L1 unit is busy with, if that is known."""
    shared, whole = kernel.shared_memory_share, kernel.share(ncu_metrics.L1_SHARE)
    if shared is None or not whole:
        return "the L1 cache with shared memory"
    return "shared memory" if shared >= MOST_SHARED * whole else "the L1 cache"


def _busy_unit(kernel: KernelMetrics, copy_gb_s: float | None) -> Bound | None:
    units = _units(kernel, copy_gb_s)
    least = max(BUSY, max((unit.share for unit in units), default=0.0) - NEAR)
    first = next((unit for unit in units if unit.share >= least), None)
    if first is None:
        return None
    # What comes from DRAM passes L2, so L2 is as busy and says nothing more.
    implied = {"memory": ("L2", "L2 slice"), "L2 slice": ("L2",)}.get(first.kind, ())
    others = [unit for unit in units if unit.kind not in (first.kind, *implied)]
    next_one = max(others, key=lambda unit: unit.share, default=None)
    text = first.readable()
    if first.kind == "memory" and first.share < FULL_RATE and kernel.us:
        at_rate = f"{first.share * kernel.us:.3g} of its {kernel.us:.3g} µs"
        text += f", at which the same bytes would take {at_rate}"
    if next_one is not None and next_one.share >= ALSO_BUSY:
        text += f"; next: {next_one.name} {next_one.share:.0%}"
    return Bound(kind=first.kind, text=text, metrics=first.metrics)


def _pipe_metrics(name: str) -> tuple[str, ...]:
    return tuple(metric for metric, pipe in ncu_metrics.PIPES.items() if pipe == name)


def _tail_of_busy_pipe(kernel: KernelMetrics) -> Bound | None:
    share = kernel.busy_multiprocessors
    shares = [*kernel.pipes.items()]
    issue, l1 = kernel.share(ncu_metrics.ISSUE_SHARE), kernel.share(ncu_metrics.L1_SHARE)
    shares += [("issue slots", issue)] if issue is not None else []
    shares += [("L1 cache and shared memory", l1)] if l1 is not None else []
    if share is None or share >= FEW_BUSY_MULTIPROCESSORS or not shares:
        return None
    name, busy = max(shares, key=lambda pair: pair[1])
    if busy < BUSY:
        return None
    text = (
        f"the tail: where blocks run, the busiest unit ({name}) works {busy:.0%} of the time, but "
        f"{1 - share:.0%} of the multiprocessors' time has no block{_gain(kernel, share)}"
    )
    metrics = (ncu_metrics.SM_ACTIVE, ncu_metrics.SM_ELAPSED)
    return Bound(kind="tail", text=text, metrics=metrics)


def _launch(kernel: KernelMetrics) -> Bound | None:
    if 0 < kernel.us < SHORT_US:
        text = (
            f"the launch: the kernel runs for {kernel.us:.1f} µs, of which starting and ending it "
            f"is the larger part"
        )
        return Bound(kind="launch", text=text, metrics=(ncu_metrics.DURATION,))
    share, waves = kernel.busy_multiprocessors, kernel.figure(ncu_metrics.WAVES)
    if share is None or share >= FEW_BUSY_MULTIPROCESSORS or _has_few_blocks(kernel):
        return None
    idle_us = (1 - share) * kernel.us
    if waves is None or waves > 1 or idle_us >= SHORT_US:
        return None
    text = (
        f"the launch: of its {kernel.us:.1f} µs the multiprocessors have no block for "
        f"{idle_us:.1f}, which is starting and ending it"
    )
    metrics = (ncu_metrics.DURATION, ncu_metrics.SM_ACTIVE, ncu_metrics.SM_ELAPSED)
    return Bound(kind="launch", text=text, metrics=metrics)


def _has_few_blocks(kernel: KernelMetrics) -> bool:
    """Whether there are blocks for a part of the multiprocessors only."""
    grid, count = kernel.figure(ncu_metrics.GRID), kernel.figure(ncu_metrics.SM_COUNT)
    return bool(grid and count and grid < FEW_BUSY_MULTIPROCESSORS * count)


def _few_blocks(kernel: KernelMetrics) -> Bound | None:
    grid, count = kernel.figure(ncu_metrics.GRID), kernel.figure(ncu_metrics.SM_COUNT)
    if not grid or not count or not _has_few_blocks(kernel):
        return None
    text = (
        f"too little parallel work: {grid:.0f} {'block' if grid == 1 else 'blocks'} for "
        f"{count:.0f} multiprocessors"
    )
    return Bound(kind="parallelism", text=text, metrics=(ncu_metrics.GRID, ncu_metrics.SM_COUNT))


def _idle_multiprocessors(kernel: KernelMetrics) -> Bound | None:
    share, waves = kernel.busy_multiprocessors, kernel.figure(ncu_metrics.WAVES)
    if share is None or share >= FEW_BUSY_MULTIPROCESSORS:
        return None
    grid = f" of {waves:.2f} waves" if waves is not None else ""
    text = (
        f"the tail: {1 - share:.0%} of the multiprocessors' time has no block (the end of a grid"
        f"{grid}, or blocks of unequal length){_gain(kernel, share)}"
    )
    metrics = (ncu_metrics.SM_ACTIVE, ncu_metrics.SM_ELAPSED, ncu_metrics.WAVES)
    return Bound(kind="tail", text=text, metrics=metrics)


def _gain(kernel: KernelMetrics, share: float) -> str:
    """Return the least time of the same work without a tail."""
    return f"; spread evenly it would take {share * kernel.us:.3g} of the {kernel.us:.3g} µs"


def _latency(kernel: KernelMetrics, copy_gb_s: float | None = None) -> Bound | None:
    issue = kernel.share(ncu_metrics.ISSUE_SHARE)
    if issue is None:
        return None
    waits = [
        (reason, share)
        for reason, share in kernel.stalls.items()
        if reason not in _ORDINARY and share >= LONG_WAIT
    ]
    most = f"{kernel.stall_text(waits[0][0])} ({waits[0][1]:.0%})" if waits else ""
    cause = f"; the warps wait most for {most}" if most else ""
    occupancy = kernel.share(ncu_metrics.OCCUPANCY)
    at = f" at {occupancy:.0%} occupancy" if occupancy is not None else ""
    units = [unit for unit in _units(kernel, copy_gb_s) if unit.kind != "issue"]
    busiest = max(units, key=lambda unit: unit.share, default=None)
    unit = f" ({busiest.name} most, {busiest.share:.0%})" if busiest is not None else ""
    text = (
        f"latency: no unit is busy for {BUSY:.0%} of the time{unit}, and{at} an instruction is "
        f"issued in {issue:.0%} of the cycles{cause}"
    )
    metrics = (ncu_metrics.ISSUE_SHARE, ncu_metrics.OCCUPANCY)
    return Bound(kind="latency", text=text, metrics=metrics)
