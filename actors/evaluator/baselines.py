"""The reference's own times: eager, and under torch.compile when that is asked for.

A busy machine makes threads of one call wait for each other, by any factor: of each figure's blocks
the lower quartile counts, which favours the baseline, and what was not settled is not kept.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from statistics import quantiles

from actors.evaluator import timing
from actors.evaluator.baseline_store import Baselines, BaselineStore
from actors.evaluator.isolation.child import Child, Gone
from actors.evaluator.standard import Standard
from actors.evaluator.wire.orders import Order, Raised
from actors.evaluator.wire.runner_orders import Bench, Compile, FromRunner
from protocol.values import Device, Value

BLOCKS = 25
FEWEST = 3  # of calls that take longer than all the time there is
MEASURE_S = 1.0
WARM_S = 0.3
COMPILE_S = 300.0
SETTLED = 1.25  # the median over the lower quartile, at most


class Figure(Value, frozen=True, kw_only=True):
    """Microseconds a call, and whether blocks agree well enough to keep it for later runs."""

    us: float
    settled: bool


def of(
    standard: Standard, device: Device, store: BaselineStore | None, *, compiled: bool
) -> Baselines:
    """Return the baselines of a task: those that are kept, or new ones.

    With a `store`, what was measured well is kept; what failed or was disturbed is tried again by
    the next run.  `compiled` False: eager alone, which costs a second and is never kept.
    """
    kept = store.find(standard.task, device) if store is not None and compiled else None
    if kept is not None:
        return kept
    eager = eager_figure(standard)
    if not compiled:
        return Baselines(eager_us=eager.us)
    figures = [compiled_figure(standard, mode) for mode in ("default", "max-autotune")]
    measured = Baselines(
        eager_us=eager.us,
        compile_us=figures[0].us if figures[0] else None,
        max_autotune_us=figures[1].us if figures[1] else None,
    )
    if store is not None and all(f is not None and f.settled for f in (eager, *figures)):
        store.keep(standard.task, device, measured)
    return measured


def eager_figure(standard: Standard) -> Figure:
    """Measure the task's own module; raise `Unjudgeable` when it can't be timed."""
    measured = _measure(standard, standard.runner)
    if measured is None:
        raise standard.failed("it could not be timed")
    return measured


def compiled_figure(standard: Standard, mode: str) -> Figure | None:
    """Measure it under torch.compile, in a runner of its own; None when it can't be compiled."""
    child: Child[FromRunner] = standard.nursery.spawn(
        "runner", standard.confinement, FromRunner, trusted=False
    )
    try:
        orders: list[tuple[Order, list[int]]] = [
            (standard.import_order(), []),
            standard.construct(),
            standard.load(),
            (Compile(mode=mode), []),
        ]
        for order, carried in orders:
            if not _well(child.ask(order, standard.limits.check_s, carried)):
                return None
        return _measure(standard, child, first_s=COMPILE_S)
    finally:
        child.kill()


def _well(answer: object) -> bool:
    return isinstance(answer, tuple) and not isinstance(answer[0], Raised)


def _measure(
    standard: Standard, child: Child[FromRunner], first_s: float | None = None
) -> Figure | None:
    limit = standard.limits.check_s
    draw = standard.examiner.draw()
    feed, carried = draw.feed(0)
    try:
        fed = _well(child.ask(feed, limit, carried))
    finally:
        os.close(draw.parcel)
        standard.examiner.forget(draw.number)
    if not fed or not _well(child.ask(Bench(calls=1, slots=1), first_s or limit)):
        return None
    calls, began = 1, time.monotonic()  # the call before has compiled
    taken: list[float] = []
    while len(taken) < BLOCKS:
        start = time.perf_counter()
        answer = child.ask(Bench(calls=calls, slots=1), limit)
        seconds = (time.perf_counter() - start) / calls
        if isinstance(answer, Gone) or isinstance(answer[0], Raised):
            return None
        elapsed = time.monotonic() - began
        calls = timing.calls_a_block(seconds)
        if elapsed >= WARM_S or calls == 1:
            taken.append(seconds * 1e6)
        if elapsed >= MEASURE_S and len(taken) >= FEWEST:
            break
    return figure_of(taken)


def figure_of(blocks: Sequence[float]) -> Figure:
    """Return the figure of blocks of microseconds (at least one)."""
    if len(blocks) == 1:
        return Figure(us=blocks[0], settled=False)
    lower, middle, _upper = quantiles(blocks, n=4, method="inclusive")
    return Figure(us=lower, settled=middle <= SETTLED * lower)
