"""The reference's own times: eager, and under torch.compile when that is asked for.

A busy machine makes threads of one call wait for each other, by any factor.  So the lower quartile
of the blocks counts, which favours the baseline, and a time that is not settled is not stored.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from statistics import quantiles

from actors.evaluator.ipc.orders import CandidateRaised, Order
from actors.evaluator.ipc.runner_orders import CallRepeatedly, CompileModule, FromRunner
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.timing import timing_statistics
from actors.evaluator.timing.baseline_cache import BaselineCache, ReferenceBaselines
from actors.work_context import STANDALONE, EvaluationContext
from protocol.values import Device, Value

MAX_BLOCKS = 25
MIN_BLOCKS = 3  # also of calls that take longer than MEASURE_S
MEASURE_S = 1.0
WARM_UP_S = 0.3
COMPILE_S = 300.0
SETTLED_RATIO = 1.25  # the median over the lower quartile, at most


class BaselineTime(Value, frozen=True, kw_only=True):
    """Microseconds a call, and whether blocks agree well enough to store it for later runs."""

    us: float
    is_settled: bool


def measure_baselines(
    fixture: ReferenceFixture,
    device: Device,
    store: BaselineCache | None,
    context: EvaluationContext = STANDALONE,
    *,
    compiled: bool,
) -> ReferenceBaselines:
    """Return the baselines of a task: stored ones, or new ones.

    With a `store`, settled times are stored; a time that failed or was disturbed is measured again
    by the next run.  `compiled` False: eager alone, which costs a second and is never stored.
    """
    stored = store.find(fixture.task, device) if store is not None and compiled else None
    if stored is not None:
        context.log_step("baselines taken from the store")
        return stored
    eager = eager_time(fixture)
    if not compiled:
        return ReferenceBaselines(eager_us=eager.us)
    figures = []
    for mode in ("default", "max-autotune"):
        context.set_activity(f"measuring torch.compile {mode} (limit {COMPILE_S:.0f} s) of")
        figures.append(compiled_time(fixture, mode))
    measured = ReferenceBaselines(
        eager_us=eager.us,
        compile_us=figures[0].us if figures[0] else None,
        max_autotune_us=figures[1].us if figures[1] else None,
    )
    if store is not None and all(f is not None and f.is_settled for f in (eager, *figures)):
        store.store(fixture.task, device, measured)
    return measured


def eager_time(fixture: ReferenceFixture) -> BaselineTime:
    """Measure the task's own module; raise `JudgeUnavailableError` when it can't be timed."""
    measured = _measure(fixture, fixture.runner)
    if measured is None:
        raise fixture.failure("it could not be timed")
    return measured


def compiled_time(fixture: ReferenceFixture, mode: str) -> BaselineTime | None:
    """Measure the module under torch.compile, in a new runner; None if it can't be compiled."""
    child: ChildClient[FromRunner] = fixture.zygote.spawn(
        "runner", fixture.confinement, FromRunner, trusted=False
    )
    try:
        orders: list[tuple[Order, list[int]]] = [
            (fixture.import_order(), []),
            fixture.construct_order(),
            fixture.load_order(),
            (CompileModule(mode=mode), []),
        ]
        for order, carried in orders:
            if not _is_good_answer(child.ask(order, fixture.limits.check_s, carried)):
                return None
        return _measure(fixture, child, first_s=COMPILE_S)
    finally:
        child.kill()


def _is_good_answer(answer: object) -> bool:
    return isinstance(answer, tuple) and not isinstance(answer[0], CandidateRaised)


def _measure(
    fixture: ReferenceFixture, child: ChildClient[FromRunner], first_s: float | None = None
) -> BaselineTime | None:
    limit = fixture.limits.check_s
    draw = fixture.referee.draw()
    order, carried = draw.set_inputs_order(0)
    try:
        has_inputs = _is_good_answer(child.ask(order, limit, carried))
    finally:
        os.close(draw.buffer)
        fixture.referee.forget(draw.number)
    if not has_inputs or not _is_good_answer(
        child.ask(CallRepeatedly(calls=1, slots=1), first_s or limit)
    ):
        return None
    calls, began = 1, time.monotonic()  # the first call, which compiles, is over
    blocks_us: list[float] = []
    while len(blocks_us) < MAX_BLOCKS:
        start = time.perf_counter()
        answer = child.ask(CallRepeatedly(calls=calls, slots=1), limit)
        seconds = (time.perf_counter() - start) / calls
        if isinstance(answer, ChildFailure) or isinstance(answer[0], CandidateRaised):
            return None
        elapsed = time.monotonic() - began
        calls = timing_statistics.calls_a_block(seconds)
        if elapsed >= WARM_UP_S or calls == 1:
            blocks_us.append(seconds * 1e6)
        if elapsed >= MEASURE_S and len(blocks_us) >= MIN_BLOCKS:
            break
    return baseline_of_blocks(blocks_us)


def baseline_of_blocks(blocks: Sequence[float]) -> BaselineTime:
    """Return the baseline of at least one block, each in microseconds a call."""
    if len(blocks) == 1:
        return BaselineTime(us=blocks[0], is_settled=False)
    lower, middle, _upper = quantiles(blocks, n=4, method="inclusive")
    return BaselineTime(us=lower, is_settled=middle <= SETTLED_RATIO * lower)
