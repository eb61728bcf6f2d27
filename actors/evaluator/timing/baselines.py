"""The reference's own times: eager, and under torch.compile when that is asked for.

A busy machine makes threads of one call wait for each other, by any factor.  So the lower quartile
of the blocks counts, which favours the baseline, and a time that is not settled is not stored.

torch.compile takes from seconds to minutes.  In a run it is measured while the device has nothing
else to do, and may be cancelled for a candidate at any moment: a mode that is done is not measured
again by this process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from statistics import quantiles

from actors.evaluator.ipc.orders import CandidateRaised
from actors.evaluator.ipc.runner_orders import (
    CallRepeatedly,
    CompileModule,
    FromRunner,
    ReleaseTensors,
)
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.reference.runner_start import FailedStart, start_runner
from actors.evaluator.sandbox import clock_priority
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.freezer import ProcessFreezer, freezer_for_new_children
from actors.evaluator.timing import timing_statistics
from actors.evaluator.timing.baseline_cache import (
    BaselineCache,
    ReferenceBaselines,
    task_digest,
)
from actors.work_context import EvaluationContext
from protocol.values import Device, Task, Value

MAX_BLOCKS = 25
MIN_BLOCKS = 3  # also of calls that take longer than MEASURE_S
MEASURE_S = 1.0
WARM_UP_S = 0.3
LIMIT_SHARE = 0.2  # of the seconds that a candidate is timed for, at most: eager alone
COMPILE_S = 300.0
MODES = ("default", "max-autotune")
SETTLED_RATIO = 1.25  # the median over the lower quartile, at most


class BaselineTime(Value, frozen=True, kw_only=True):
    """Microseconds a call, and whether blocks agree well enough to store it for later runs."""

    us: float
    is_settled: bool


class CompiledBaselines:
    """torch.compile's times of the tasks of one device: stored ones, or new ones."""

    def __init__(self, store: BaselineCache) -> None:
        self._store = store
        self._modes_done: dict[tuple[str, str], BaselineTime | None] = {}  # by task and mode

    def stored(self, task: Task, device: Device) -> ReferenceBaselines | None:
        """Return what an earlier run measured."""
        return self._store.find(task, device)

    def measure(
        self, fixture: ReferenceFixture, device: Device, context: EvaluationContext
    ) -> ReferenceBaselines:
        """Measure eager and both modes in one process, and store them if all are settled.

        A time that failed or was disturbed is measured again by the next run.  Raises
        `EvaluationCancelledError`.
        """
        with closing(BaselineProcess(fixture)) as process:
            eager = process.time(None)
            if eager is None:
                raise fixture.failure("it could not be timed")
            modes = [self._mode_time(process, fixture.task, mode, context) for mode in MODES]
        measured = ReferenceBaselines(
            eager_us=eager.us,
            compile_us=modes[0].us if modes[0] else None,
            max_autotune_us=modes[1].us if modes[1] else None,
        )
        if all(time is not None and time.is_settled for time in (eager, *modes)):
            self._store.store(fixture.task, device, measured)
        for mode in MODES:
            del self._modes_done[task_digest(fixture.task), mode]
        return measured

    def _mode_time(
        self, process: BaselineProcess, task: Task, mode: str, context: EvaluationContext
    ) -> BaselineTime | None:
        key = (task_digest(task), mode)
        if key not in self._modes_done:
            context.set_activity(f"measuring torch.compile {mode} (limit {COMPILE_S:.0f} s) of")
            self._modes_done[key] = process.time(mode)
        return self._modes_done[key]


class BaselineProcess:
    """The task's module in a process of its own, called as it is and then compiled.

    The fixture's runner has to stay warm, and the end of a cancelled measurement kills this one.
    Importing torch's compilers and constructing the module take longer than most measurements.
    """

    def __init__(self, fixture: ReferenceFixture) -> None:
        self._fixture = fixture
        self._child: ChildClient[FromRunner] | None = None
        self._freezer = ProcessFreezer(set())

    def time(self, mode: str | None) -> BaselineTime | None:
        """Measure the module, under torch.compile unless `mode` is None; that comes first.

        None: it can't be compiled, or called.
        """
        child = self._child = self._child or self._started()
        limit = self._fixture.limits.check_s
        measured = None
        if mode is None or _is_good_answer(child.ask(CompileModule(mode=mode), limit)):
            measured = _measure(self._fixture, child, self._freezer, first_s=COMPILE_S)
        if measured is None:
            self.close()  # it may not answer any more
        return measured

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.kill()
        self._child = None

    def _started(self) -> ChildClient[FromRunner]:
        fixture = self._fixture
        child: ChildClient[FromRunner]
        with freezer_for_new_children(fixture.zygote) as self._freezer:
            child = fixture.zygote.spawn("runner", fixture.confinement, FromRunner, trusted=False)
        limit_s = fixture.limits.check_s
        started = start_runner(child, fixture.start_orders(), import_s=limit_s, check_s=limit_s)
        if isinstance(started, FailedStart):
            child.kill()
            raise fixture.failure("it could not be constructed once more")
        return child


def missing_note(measured: ReferenceBaselines) -> str:
    """Return which of torch.compile's times are missing, and what that means; "" if none is."""
    figures = (measured.compile_us, measured.max_autotune_us)
    missing = [mode for mode, us in zip(MODES, figures, strict=True) if us is None]
    if not missing:
        return ""
    return (
        f"torch.compile ({' and '.join(missing)}) has no time: it failed, or took more than"
        f" {COMPILE_S:.0f} s"
    )


def on_clock_of(eager_us: float, measured: ReferenceBaselines) -> ReferenceBaselines:
    """Return baselines as if eager had taken `eager_us`, its time in another measurement.

    The device may be warmer or busier by now, so torch.compile's times are compared with an eager
    time that was measured beside them.
    """
    factor = eager_us / measured.eager_us
    figures = (measured.compile_us, measured.max_autotune_us)
    compiled, tuned = (None if us is None else us * factor for us in figures)
    return ReferenceBaselines(eager_us=eager_us, compile_us=compiled, max_autotune_us=tuned)


def eager_time(fixture: ReferenceFixture) -> BaselineTime:
    """Measure the task's own module; raise `JudgeUnavailableError` when it can't be timed.

    It is timed again beside each candidate, so a limit of that timing shortens this one, too: on a
    card.  On a host a busy moment must not pass for the reference's undisturbed time.
    """
    limited_s = MEASURE_S if fixture.on_host else LIMIT_SHARE * fixture.limits.time_s
    measure_s = min(MEASURE_S, limited_s)
    measured = _measure(fixture, fixture.runner, fixture.freezer, measure_s=measure_s)
    if measured is None:
        raise fixture.failure("it could not be timed")
    fixture.runner.ask(ReleaseTensors(), fixture.limits.check_s)  # a candidate needs the memory
    return measured


def _is_good_answer(answer: object) -> bool:
    return isinstance(answer, tuple) and not isinstance(answer[0], CandidateRaised)


def _measure(
    fixture: ReferenceFixture,
    child: ChildClient[FromRunner],
    freezer: ProcessFreezer,
    first_s: float | None = None,
    measure_s: float = MEASURE_S,
) -> BaselineTime | None:
    """Time a module after its first call, in which it is compiled; None: it raised or died.

    `measure_s`: for so long, with the warm-up.
    With the priority that both sides have in a benchmark.  Beside other programs a call of 0.2 ms
    took 75 ms in every block: its threads waited for each other.
    """
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
    clock = clock_priority.realtime_priority() if fixture.on_host else nullcontext()
    with freezer.priority_of_all(), clock:
        blocks_us = _block_times_us(child, limit, measure_s)
    return baseline_of_blocks(blocks_us) if blocks_us else None


def _block_times_us(child: ChildClient[FromRunner], limit: float, measure_s: float) -> list[float]:
    """Return microseconds a call of each block; [] when one raised or the process died."""
    warm_up_s = WARM_UP_S * measure_s / MEASURE_S
    calls, began = 1, time.monotonic()
    blocks_us: list[float] = []
    while len(blocks_us) < MAX_BLOCKS:
        start = time.perf_counter()
        answer = child.ask(CallRepeatedly(calls=calls, slots=1), limit)
        seconds = (time.perf_counter() - start) / calls
        if isinstance(answer, ChildFailure) or isinstance(answer[0], CandidateRaised):
            return []
        elapsed = time.monotonic() - began
        calls = timing_statistics.calls_a_block(seconds)
        if elapsed >= warm_up_s or calls == 1:
            blocks_us.append(seconds * 1e6)
        if elapsed >= measure_s and len(blocks_us) >= MIN_BLOCKS:
            break
    return blocks_us


def baseline_of_blocks(blocks: Sequence[float]) -> BaselineTime:
    """Return the baseline of at least one block, each in microseconds a call."""
    if len(blocks) == 1:
        return BaselineTime(us=blocks[0], is_settled=False)
    lower, middle, _upper = quantiles(blocks, n=4, method="inclusive")
    return BaselineTime(us=lower, is_settled=middle <= SETTLED_RATIO * lower)
