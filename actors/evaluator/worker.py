"""The evaluator as an actor: takes `MeasureReference` and `Evaluate`, gives `ReferenceMeasured` and
`Evaluated`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from actors.evaluator.judge import Judge, TaskProblem
from actors.evaluator.release_stage import essential_failure
from actors.evaluator.sandbox.child_client import EvaluationCancelledError
from actors.evaluator.sandbox.zygote_client import (
    DeviceQuarantinedError,
    JudgeUnavailableError,
    ReferenceFailedError,
)
from actors.evaluator.verdict_rounds import combine_verdicts, has_enough
from actors.release.composition import drop_in_source
from actors.work_context import WorkContext
from protocol.messages import (
    Evaluate,
    Evaluated,
    HandedBack,
    MeasureReference,
    ReferenceMeasured,
    Work,
)
from protocol.values import Device, Outcome, Role, Verdict

MEMORY_SENSITIVE_OUTCOMES = (
    Outcome.CRASHED,
    Outcome.COMPILE_FAILED,
)  # what a signal from outside looks like
MAX_FAILURES = 3  # in a row, then the actor ends and the supervisor decides


class EvaluatorWorker:
    """One device's evaluator: one candidate on the device, others being built meanwhile.

    `running` is said when a candidate's turn on the device begins, not when it is built, though
    that runs its code, too: a build has no device and is the better confined, and if it counted,
    one candidate that takes the evaluator down would be charged to all that were being built.
    """

    role = Role.EVALUATOR

    def __init__(self, judge: Judge) -> None:
        self.credit = 1 + judge.ahead
        self.judge = judge
        self.device: Device | None = judge.device
        self._failures = 0

    def work(
        self, request: Work, context: WorkContext
    ) -> ReferenceMeasured | Evaluated | HandedBack:
        """Measure a task or judge a candidate; hand back what can't be done now."""
        try:
            result = self._work(request, context)
        except EvaluationCancelledError:
            return HandedBack(lease=request.lease, reason="no longer wanted")
        except JudgeUnavailableError as error:
            self._failures += 1
            if self._failures >= MAX_FAILURES:
                raise
            sick = isinstance(error, DeviceQuarantinedError)
            # A task whose own module fails here will fail again; a machine that can't start a
            # process, or has no room, must not make verdicts of it.
            tried = isinstance(error, ReferenceFailedError)
            return HandedBack(
                lease=request.lease, reason=str(error), quarantined=sick, reference_failed=tried
            )
        self._failures = 0
        if (
            isinstance(result, Evaluated)
            and result.verdict.verdict in MEMORY_SENSITIVE_OUTCOMES
            and context.is_revoked()
        ):
            # A batch system signals every process of a job: that was not the candidate's doing.
            return HandedBack(lease=request.lease, reason="ended while this machine was leaving")
        return result

    def _work(self, request: Work, context: WorkContext) -> ReferenceMeasured | Evaluated:
        name = request.lease.work.rpartition("/")[0]
        if isinstance(request, MeasureReference):
            task = request.task.name
            context.set_activity(f"measuring {task}")
            return self._measure(
                request, context, lambda words: context.set_activity(f"{words} {task}")
            )
        if isinstance(request, Evaluate):
            return self._evaluate(
                request, context, lambda words: context.set_activity(f"{words} {name}")
            )
        raise TypeError(f"an evaluator was leased a {type(request).__name__}")

    def _measure(
        self, request: MeasureReference, context: WorkContext, set_activity: Callable[[str], None]
    ) -> ReferenceMeasured:
        found = self.judge.measure(request.task, context.is_revoked, set_activity)
        if isinstance(found, TaskProblem):
            return ReferenceMeasured(lease=request.lease, problem=found.reason)
        return ReferenceMeasured(lease=request.lease, reference=found)

    def _evaluate(
        self, request: Evaluate, context: WorkContext, set_activity: Callable[[str], None]
    ) -> Evaluated:
        if request.rounds > 1:
            return self._confirm(request, context, set_activity)
        verdict = self._judge(request, context, set_activity, request.source)
        return Evaluated(lease=request.lease, verdict=verdict)

    def _judge(
        self,
        request: Evaluate,
        context: WorkContext,
        set_activity: Callable[[str], None],
        source: str,
        *,
        profiled: bool = False,
    ) -> Verdict:
        verdict = self.judge.judge(
            request.task,
            source,
            request.reference,
            context.candidate_running,
            set_activity,
            context.is_revoked,
            self.judge.build(source, context.is_revoked, request.task.modules),
            profiled=profiled,
            written=request.source,
        )
        if isinstance(verdict, TaskProblem):
            # It was measured before, so this machine is the odd one.
            raise ReferenceFailedError(verdict.reason)
        return verdict

    def _confirm(
        self, request: Evaluate, context: WorkContext, set_activity: Callable[[str], None]
    ) -> Evaluated:
        """Judge one of the best as its users will have it: as a drop-in file, several times."""
        context.candidate_running()
        release = self.judge.release(request.task, request.source, set_activity, context.is_revoked)
        if isinstance(release, TaskProblem):
            raise ReferenceFailedError(release.reason)
        reason = essential_failure(release)
        if reason:
            verdict = Verdict(verdict=Outcome.WRONG, stage="check", reason=reason, release=release)
            return Evaluated(lease=request.lease, verdict=verdict)
        source = drop_in_source(request.task.source, request.source, release)
        verdicts: list[Verdict] = []
        while not verdicts or not has_enough(verdicts, request.rounds, request.most_rounds):
            try:
                # Profiled once: what a planner needs to know, and too slow for every candidate.
                verdict = self._judge(request, context, set_activity, source, profiled=not verdicts)
            except EvaluationCancelledError:
                if len(verdicts) < request.rounds:
                    raise
                break  # there is no time for more: what was measured so far is the verdict
            verdicts.append(verdict)
        verdict = combine_verdicts(verdicts)
        set_activity("inspecting")
        verdict = self.judge.inspect(request.task, source, verdict, context.is_revoked)
        released = msgspec.structs.replace(verdict, release=release)
        return Evaluated(lease=request.lease, verdict=released)

    def close(self) -> None:
        """End every child."""
        self.judge.close()
