"""Several sources judged one after the other, on a GPU while the next ones are built.

A candidate that declares variants has them raced, and the best ones judged in full.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Event

from actors.evaluator.build.build_stage import BuildResult
from actors.evaluator.judge import Judge, TaskProblem
from actors.evaluator.repeated_evaluation import ReportedContext
from actors.evaluator.sandbox.child_client import EvaluationCancelledError
from actors.evaluator.sandbox.zygote_client import ReferenceFailedError
from actors.evaluator.variant_race import MAX_RACE_S, declared_space, race, variants_of
from actors.work_context import STANDALONE, EvaluationContext
from protocol.values import Outcome, Task, Verdict

MAX_TRIAL_S = 30.0  # a variant that hangs leaves time for others
Builds = deque[Future[BuildResult | None]]


class TimedContext(ReportedContext):
    """A context that a moment revokes, too; the candidate was reported as running before."""

    def __init__(
        self,
        context: EvaluationContext,
        until: float,
        clock: Callable[[], float],
        running_s: float = math.inf,
    ) -> None:
        """`running_s`: the most that the candidate may run: a build in the same turn is none."""
        super().__init__(context)
        self._until = until
        self._clock = clock
        self._running_s = running_s
        self.is_revoked = lambda: clock() >= self._until or context.is_revoked()

    def candidate_running(self) -> None:
        """Begin to count the seconds that the candidate runs."""
        self._until = min(self._until, self._clock() + self._running_s)


class EndContext:
    """A caller's context that an event revokes, too."""

    def __init__(self, context: EvaluationContext) -> None:
        self.set_activity = context.set_activity
        self.log_step = context.log_step
        self.candidate_running = context.candidate_running
        self._context = context
        self.event = Event()

    def is_revoked(self) -> bool:
        """Whether the event is set, or the caller's work is revoked."""
        return self.event.is_set() or self._context.is_revoked()


@contextmanager
def builds_ahead(
    judge: Judge, task: Task, sources: Sequence[str], context: EvaluationContext
) -> Iterator[Builds]:
    """Have `sources` built; what is not built at the end is cancelled."""
    end = EndContext(context)
    with ThreadPoolExecutor(max(1, judge.ahead)) as pool:
        try:
            yield deque(pool.submit(judge.build, source, task.modules, end) for source in sources)
        finally:
            end.event.set()
            pool.shutdown(cancel_futures=True)


def judge_in_order(
    judge: Judge,
    task: Task,
    sources: Sequence[str],
    context: EvaluationContext = STANDALONE,
    *,
    profiled: bool = False,
) -> Iterator[Verdict | TaskProblem]:
    """Judge one source after the other."""
    with builds_ahead(judge, task, sources, context) as builds:
        for source in sources:
            built = builds.popleft().result()
            found = judge.judge(task, source, context, built=built, inspected="crash")
            if profiled and isinstance(found, Verdict):
                found = judge.inspect(task, source, found)
            yield found


def judge_best_variant(
    judge: Judge,
    task: Task,
    source: str,
    context: EvaluationContext,
    in_full: Callable[[str, EvaluationContext], Verdict],
) -> Verdict:
    """Judge a candidate; if it declares a space of values, the best variants of a race.

    `in_full` judges a text.  The builds of the race run before its turn on the device; the race and
    the judging in full are one turn.  The candidate is reported as running once.  Raises
    `ReferenceFailedError`, `JudgeUnavailableError` and `EvaluationCancelledError`.
    """
    space = declared_space(source)
    if space is None:
        return in_full(source, context)
    if isinstance(space, Verdict):
        return space
    variants = variants_of(source, space)
    if len(variants) == 1:
        return race(variants, no_trials).judged(lambda text: in_full(text, context))
    context.log_step("building variants", number=len(variants))
    texts = [variant.source for variant in variants]
    with builds_ahead(judge, task, texts, context) as builds:
        wait(builds)
        with judge.turn(task, context):
            context.log_step("racing variants", number=len(variants))
            context.candidate_running()
            reported, began = ReportedContext(context), time.monotonic()
            raced = race(variants, Trials(judge, task, reported, builds).run)
            seconds = round(time.monotonic() - began, 3)
            context.log_step("raced variants", number=len(variants), seconds=seconds)
            return raced.judged(lambda text: in_full(text, reported))


def no_trials(_sources: Sequence[str], _trial_s: float) -> list[Verdict]:
    """Return nothing: one variant is not raced."""
    return []


class Trials:
    """The rough trials of one candidate's variants, in one turn on the device."""

    def __init__(
        self,
        judge: Judge,
        task: Task,
        context: EvaluationContext,
        builds: Builds,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`builds`: of the first round; a build is used once."""
        self._clock = clock
        self._judge = judge
        self._task = task
        self._context = context
        self._builds = builds
        self._until = clock() + MAX_RACE_S

    def run(self, sources: Sequence[str], trial_s: float) -> list[Verdict]:
        """Try one source after the other, each with `trial_s` seconds of timing."""
        if self._builds:
            return [self._try(source, trial_s, self._builds) for source in sources]
        # The device waits for these builds.
        timed = TimedContext(self._context, self._until, self._clock)
        with builds_ahead(self._judge, self._task, sources, timed) as builds:
            return [self._try(source, trial_s, builds) for source in sources]

    def _try(self, source: str, trial_s: float, builds: Builds) -> Verdict:
        """Try one source; a variant that hangs takes no more than its share of the race."""
        if self._clock() >= self._until:
            return _stopped("it was not tried: the time of the race was up")
        try:
            built = builds.popleft().result()
            timed = TimedContext(self._context, self._until, self._clock, MAX_TRIAL_S)
            found = self._judge.judge(self._task, source, timed, built=built, trial_s=trial_s)
        except EvaluationCancelledError:
            if self._judge.is_closing or self._context.is_revoked():
                raise
            if self._clock() >= self._until:
                return _stopped("the time of the race was up before its trial was over")
            return _stopped(f"its trial took more than {MAX_TRIAL_S:.0f} s")
        return require_verdict(found)


def _stopped(reason: str) -> Verdict:
    return Verdict(verdict=Outcome.TIMED_OUT, stage="check", reason=reason)


def require_verdict(found: Verdict | TaskProblem) -> Verdict:
    """Return the verdict; a task that was measured before and fails is this machine's fault."""
    if isinstance(found, TaskProblem):
        raise ReferenceFailedError(found.reason)
    return found
