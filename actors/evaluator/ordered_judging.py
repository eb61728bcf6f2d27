"""Several sources judged one after the other; on a GPU the next ones are built meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from actors.evaluator.judge import Judge, TaskProblem
from actors.evaluator.repeated_evaluation import ReportedContext
from actors.evaluator.sandbox.zygote_client import ReferenceFailedError
from actors.evaluator.variant_race import RaceResult, declared_space, race
from actors.work_context import STANDALONE, EvaluationContext
from protocol.values import Task, Verdict


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


def judge_in_order(
    judge: Judge,
    task: Task,
    sources: Sequence[str],
    context: EvaluationContext = STANDALONE,
    *,
    profiled: bool = False,
    trial_s: float | None = None,
) -> Iterator[Verdict | TaskProblem]:
    """Judge one source after the other; `trial_s`: seconds of rough timing for each, for a race."""
    end = EndContext(context)
    with ThreadPoolExecutor(max(1, judge.ahead)) as pool:
        builds = deque(pool.submit(judge.build, source, task.modules, end) for source in sources)
        try:
            for source in sources:
                built = builds.popleft().result()
                found = judge.judge(
                    task,
                    source,
                    end,
                    built=built,
                    inspected="no" if trial_s else "crash",
                    trial_s=trial_s,
                )
                if profiled and isinstance(found, Verdict):
                    found = judge.inspect(task, source, found)
                yield found
        finally:
            end.event.set()
            pool.shutdown(cancel_futures=True)


def race_variants(
    judge: Judge, task: Task, source: str, context: EvaluationContext = STANDALONE
) -> RaceResult | Verdict | None:
    """Race the variants of a candidate that declares a space of values.

    None: it declares none.  A verdict: its declaration breaks a rule.  The candidate is reported
    as running once.  Raises `ReferenceFailedError`, `JudgeUnavailableError` and
    `EvaluationCancelledError`.
    """
    space = declared_space(source)
    if space is None or isinstance(space, Verdict):
        return space
    context.log_step("racing variants", number=len(space.assignments()))
    context.candidate_running()
    reported = ReportedContext(context)

    def judge_sources(sources: Sequence[str], trial_s: float) -> list[Verdict]:
        found = judge_in_order(judge, task, sources, reported, trial_s=trial_s)
        return [require_verdict(verdict) for verdict in found]

    return race(source, space, judge_sources)


def with_race(verdict: Verdict, raced: RaceResult | Verdict | None) -> Verdict:
    """Return a verdict with the results of a race, or the one on a broken declaration."""
    if isinstance(raced, RaceResult):
        return raced.attach_to(verdict)
    return verdict if raced is None else raced


def require_verdict(found: Verdict | TaskProblem) -> Verdict:
    """Return the verdict; a task that was measured before and fails is this machine's fault."""
    if isinstance(found, TaskProblem):
        raise ReferenceFailedError(found.reason)
    return found
