"""What bounds a kernel, by fixed rules over its metrics.  Pure.

The rules, in this order (`docs/cuda.md` has them as a table):

1. The busiest unit decides if it is busy for `BUSY` of the time or more: DRAM (against the rate of
   a copy), an arithmetic pipe, the busier one of the L1 cache with shared memory and the L2 cache,
   one slice of the L2 cache that is much busier than all of them, the load/store pipe, or the issue
   slots.  Among the units within `NEAR` of the busiest one the first in this order is named, and
   how sure that is.  Few warps that all wait for data while no unit is near its limit: latency.
2. A kernel shorter than `SHORT_US`, or one of at most one wave whose multiprocessors have no block
   for less than that: its launch.
3. Blocks for fewer than `FEW_BUSY_MULTIPROCESSORS` of them all: too little parallel work.
4. A pipe or the issue slots that are busy where blocks run, on multiprocessors that have none for
   much of the time: the tail of the grid.  Multiprocessors without a block for more than a quarter
   of the time: the tail, or blocks of unequal length.
5. Anything else: latency, with the busiest unit and what the warps wait for.

`bound_causes` adds what keeps memory or a cache busy.  All shares are of the time of the whole
launch, on all multiprocessors.
"""

from __future__ import annotations

from typing import Literal

from msgspec import structs

from actors.evaluator.profiling import ncu_metrics
from actors.evaluator.profiling.bound_causes import L2_SECTORS, cause_of, l2_traffic
from actors.evaluator.profiling.ncu_metrics import KernelMetrics
from protocol.facts import UnitShare
from protocol.figure_text import amount_text
from protocol.values import Value

BoundKind = Literal[
    "host",
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
NEAR_LIMIT, SATURATED = 0.7, 0.85  # of the time: how sure it is that a busy unit is the bound
ALSO_BUSY = 0.5  # another unit that is named beside the first
NEAR = 0.1
ATTAINABLE_DRAM = 0.92  # of the peak; a copy reaches about this
FULL_RATE = 0.85  # of DRAM's attainable rate: below it the time at the full rate is told
SHORT_US = 4.0  # an empty kernel takes about 2 under ncu
FEW_BUSY_MULTIPROCESSORS = 0.75
MOST_SHARED = 0.6  # of what keeps the L1 unit busy: accesses to shared memory
SECTOR_CYCLES = 16  # more than any access keeps a slice of L2 busy
LONG_WAIT = 0.1  # a stall reason below this share is not named as the cause
FEW_WARPS = 1 / 3  # of a multiprocessor's: fewer that wait for data are too few for its memory
MOSTLY_WAITING = 0.8  # of the time in which a warp waits
LOW_OCCUPANCY = 0.5  # from here on it is not asked what keeps it low
REACHED = 0.7  # of the possible occupancy: from here on what limits it keeps it low
# Reasons that say nothing about what to change.
_ORDINARY = frozenset(["not_selected", "misc", "sleeping"])


class Bound(Value, frozen=True, kw_only=True):
    """What bounds a kernel, and the metrics that show it."""

    kind: BoundKind
    text: str
    metrics: tuple[str, ...] = ()
    is_saturated: bool = False  # a unit that can't do more
    told: tuple[str, ...] = ()  # metrics that the cause in the text has told of


def bound_of(
    kernel: KernelMetrics, copy_gb_s: float | None = None, l2_read_gb_s: float | None = None
) -> Bound | None:
    """Return what bounds `kernel`; None where too little was measured.

    `copy_gb_s`: the rate of a large copy on this device, which is the attainable rate of DRAM.
    `l2_read_gb_s`: the rate of reads from L2 there.
    """
    found = _busy_unit(kernel, copy_gb_s)
    for rule in (_launch, _few_blocks, _tail_of_busy_pipe, _idle_multiprocessors):
        found = found or rule(kernel)
    found = found or _latency(kernel, copy_gb_s)
    if found is None:
        return None
    cause = cause_of(kernel, found.kind)
    if cause is not None:
        return _with(found, f"cause: {cause.text}", cause.metrics)
    traffic = l2_traffic(kernel, l2_read_gb_s) if found.kind == "L2" else None
    return found if traffic is None else _with(found, traffic.text, traffic.metrics)


def _with(bound: Bound, text: str, metrics: tuple[str, ...]) -> Bound:
    whole = f"{bound.text}; {text}"
    return structs.replace(bound, text=whole, metrics=(*bound.metrics, *metrics), told=metrics)


def unit_shares(kernel: KernelMetrics, copy_gb_s: float | None) -> tuple[UnitShare, ...]:
    """Return how busy DRAM and the tensor cores are, where that is known and not nothing."""
    shares = {
        "DRAM": dram_share(kernel, copy_gb_s),
        ncu_metrics.TENSOR_CORES: kernel.pipes.get(ncu_metrics.TENSOR_CORES),
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

    @property
    def strength(self) -> str:
        """How sure it is that this unit is the bound, for people."""
        if self.share >= SATURATED:
            return "saturated"
        return "near its limit" if self.share >= NEAR_LIMIT else "not certain: it may be latency"

    def readable(self) -> str:
        """Return the unit as a bound, for people."""
        share, sure = f"{self.share:.0%}", f"({self.strength})"
        match self.kind:
            case "memory":
                return f"memory: DRAM works at {share} of the rate that a copy reaches {sure}"
            case "L1":
                return f"{self.name}, busy for {share} of the time {sure}"
            case "load/store":
                return f"load and store instructions, whose pipe is busy for {share} {sure}"
            case "L2":
                return f"the L2 cache, at {share} of its peak {sure}"
            case "L2 slice":
                return (
                    f"{self.name}, at {share} of its peak {sure}: many accesses to few addresses "
                    "take turns there"
                )
            case "issue":
                return (
                    f"compute: the number of instructions, which fill {share} of the issue slots "
                    f"{sure}"
                )
            case _:
                verb = "are" if self.name.endswith("s") else "is"
                return f"compute: the {self.name} {verb} busy for {share} of the time {sure}"


def _units(kernel: KernelMetrics, copy_gb_s: float | None) -> list[_Unit]:
    """Return the known units in the order of precedence."""
    dram_metrics = (ncu_metrics.DRAM_SHARE, ncu_metrics.DRAM_READ, ncu_metrics.DRAM_WRITTEN)
    issue, pipes = kernel.launch_share(ncu_metrics.ISSUE_SHARE), kernel.pipes
    l1, l2 = kernel.launch_share(ncu_metrics.L1_SHARE), kernel.share(ncu_metrics.L2_SHARE)
    caches: list[tuple[BoundKind, str, float | None, tuple[str, ...]]] = [
        ("L1", _l1_name(kernel), l1, (ncu_metrics.L1_SHARE, ncu_metrics.SHARED_WAVEFRONTS)),
        ("L2", "the L2 cache", l2, (ncu_metrics.L2_SHARE,)),
    ]
    slice_metrics = (ncu_metrics.L2_SLICE_SHARE, ncu_metrics.L2_SHARE)
    known: list[tuple[BoundKind, str, float | None, tuple[str, ...]]] = [
        ("memory", "DRAM", dram_share(kernel, copy_gb_s), dram_metrics),
        *(
            ("compute", name, share, _pipe_metrics(name))
            for name, share in pipes.items()
            if name != ncu_metrics.PIPES[ncu_metrics.LSU_PIPE]
        ),
        # What the L1 cache does not have keeps it as busy as L2, and less so than its own work.
        *sorted(caches, key=lambda cache: -(cache[2] or 0.0)),
        ("L2 slice", "one slice of the L2 cache", _busy_slice(kernel), slice_metrics),
        *(
            ("load/store", name, share, (ncu_metrics.LSU_PIPE,))
            for name, share in pipes.items()
            if name == ncu_metrics.PIPES[ncu_metrics.LSU_PIPE]
        ),
        ("issue", "issue slots", issue, (ncu_metrics.ISSUE_SHARE,)),
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
    shared, whole = kernel.shared_memory_share, kernel.launch_share(ncu_metrics.L1_SHARE)
    if shared is None or not whole:
        return "the L1 cache with shared memory"
    return "shared memory" if shared >= MOST_SHARED * whole else "the L1 cache"


def _busy_unit(kernel: KernelMetrics, copy_gb_s: float | None) -> Bound | None:
    units = _units(kernel, copy_gb_s)
    most = max((unit.share for unit in units), default=0.0)
    first = next((unit for unit in units if unit.share >= max(BUSY, most - NEAR)), None)
    if first is None or (most < NEAR_LIMIT and _few_warps_wait(kernel)):
        return None
    # What comes from DRAM passes L2, so L2 is as busy and says nothing more.
    implied = {"memory": ("L2", "L2 slice"), "L2 slice": ("L2",)}.get(first.kind, ())
    others = [unit for unit in units if unit.kind not in (first.kind, *implied)]
    next_one = max(others, key=lambda unit: unit.share, default=None)
    text = first.readable()
    if first.kind == "memory" and first.share < FULL_RATE and kernel.us:
        part = amount_text(first.share * kernel.us, 3)
        at_rate = f"{part} of its {amount_text(kernel.us, 3)} µs"
        text += f", at which the same bytes would take {at_rate}"
    if next_one is not None and next_one.share >= ALSO_BUSY:
        text += f"; also busy: {next_one.name} {next_one.share:.0%}"
    return Bound(
        kind=first.kind,
        text=text,
        metrics=first.metrics,
        is_saturated=first.share >= SATURATED,
    )


def _few_warps_wait(kernel: KernelMetrics) -> bool:
    """Whether the warps are few and wait for data nearly all of the time."""
    occupancy = kernel.share(ncu_metrics.OCCUPANCY)
    waiting = kernel.stalls.get("long_scoreboard", 0.0)
    return occupancy is not None and occupancy < FEW_WARPS and waiting >= MOSTLY_WAITING


def _pipe_metrics(name: str) -> tuple[str, ...]:
    return tuple(metric for metric, pipe in ncu_metrics.PIPES.items() if pipe == name)


def _tail_of_busy_pipe(kernel: KernelMetrics) -> Bound | None:
    share = kernel.busy_multiprocessors
    named = {
        "issue slots": ncu_metrics.ISSUE_SHARE,
        "L1 cache and shared memory": ncu_metrics.L1_SHARE,
    }
    named |= {name: metric for metric, name in ncu_metrics.PIPES.items()}
    found = {name: kernel.share(metric) for name, metric in named.items()}
    shares = [(name, busy) for name, busy in found.items() if busy is not None]
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
    part = amount_text(share * kernel.us, 3)
    return f"; spread evenly it would take {part} of the {amount_text(kernel.us, 3)} µs"


def _latency(kernel: KernelMetrics, copy_gb_s: float | None = None) -> Bound | None:
    issue = kernel.launch_share(ncu_metrics.ISSUE_SHARE)
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
    at = f" at {occupancy:.0%} occupancy{_why_low(kernel)}" if occupancy is not None else ""
    units = [unit for unit in _units(kernel, copy_gb_s) if unit.kind != "issue"]
    busiest = max(units, key=lambda unit: unit.share, default=None)
    unit = f" ({busiest.name} most, {busiest.share:.0%})" if busiest is not None else ""
    text = (
        f"latency: no unit is near its limit{unit}, and{at} an instruction is issued in "
        f"{issue:.0%} of the cycles{cause}"
    )
    metrics = (ncu_metrics.ISSUE_SHARE, ncu_metrics.OCCUPANCY)
    return Bound(kind="latency", text=text, metrics=metrics)


def _why_low(kernel: KernelMetrics) -> str:
    """Return what keeps the occupancy low; "" where it is not low, or that is not known."""
    reached, possible = kernel.share(ncu_metrics.OCCUPANCY), kernel.share(ncu_metrics.MAX_OCCUPANCY)
    waves, limit = kernel.figure(ncu_metrics.WAVES), kernel.occupancy_limit
    if not reached or not possible or reached >= LOW_OCCUPANCY:
        return ""
    if reached >= REACHED * possible:
        return f" ({limit_text(kernel)})" if limit and possible < LOW_OCCUPANCY else ""
    return f" (the grid has only {waves:.2g} waves)" if waves and waves < 1 else ""


def limit_text(kernel: KernelMetrics) -> str:
    """Return what limits the blocks of a multiprocessor, and how many threads they have."""
    limit, block = kernel.occupancy_limit, kernel.figure(ncu_metrics.BLOCK)
    if limit is None:
        return ""
    name, blocks = limit
    allow = "allows" if name == "shared memory" else "allow"
    threads = f" of {block:.0f} threads" if block else ""
    return (
        f"{name} {allow} {blocks} {'block' if blocks == 1 else 'blocks'}{threads} a multiprocessor"
    )
