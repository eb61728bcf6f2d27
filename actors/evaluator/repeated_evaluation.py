"""One candidate in as many processes as its verdict needs.

A process may have bad luck for its whole life.  No candidate is rejected for that: only if two
processes are accused of the same, and a control is not: the task's own module as a candidate, at
the same moment.  If the control is accused, too, or could not have been, the machine is at fault:
the candidate is timed again without this accusation, and its verdict says so.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from actors.evaluator.evaluation import Evaluation
from actors.evaluator.ipc.profile import KernelProfile
from actors.evaluator.sandbox.child_failures import Accusation
from actors.work_context import EvaluationContext
from protocol.values import Seconds, Verdict

NOTE = "note"  # the key of a verdict's figures


class ReportedContext:
    """A context that was told already that the candidate runs."""

    def __init__(self, context: EvaluationContext) -> None:
        self.set_activity = context.set_activity
        self.log_step = context.log_step
        self.is_revoked = context.is_revoked

    def candidate_running(self) -> None:
        """Report nothing: a candidate is charged once, not for each process."""


class RepeatedEvaluation:
    """The evaluations of one candidate, and what they come to."""

    def __init__(
        self,
        evaluation: Evaluation,
        control: Callable[[], Evaluation],
        context: EvaluationContext,
        log_line: Callable[[str], None],
    ) -> None:
        """`control` makes the evaluation of the task's own module as a candidate."""
        self._evaluation = evaluation
        self._control = control
        self._context = context
        self._log_line = log_line
        self._seconds: list[Seconds] = []
        self._accusations: dict[Accusation, str] = {}  # in earlier processes, with their reasons

    @property
    def was_lost_under_profiler(self) -> bool:
        """Whether the process of the last evaluation was lost under the profiler."""
        return self._evaluation.was_lost_under_profiler

    def run(self) -> tuple[Verdict, KernelProfile | None]:
        """Return the verdict, and the profile of the evaluation that it is made of."""
        verdict = self._run()
        while True:
            accusation = self._evaluation.accusation
            if accusation is not None:
                if accusation in self._accusations:
                    verdict = self._compared_with_control(accusation, verdict)
                    break
                self._accusations[accusation] = verdict.reason
                self._log_line(f"looking at it again, in a new process: {verdict.reason}")
            else:
                if verdict.is_correct and self._accusations:
                    reasons = "; ".join(self._accusations.values())
                    verdict = _with_note(verdict, f"not so in a second process: {reasons}")
                break
            self._evaluation = self._evaluation.in_new_process(suspected=accusation)
            verdict = self._run()
        return self._with_all_seconds(verdict), self._evaluation.kernel_profile

    def _compared_with_control(self, accusation: Accusation, verdict: Verdict) -> Verdict:
        """Return the rejection if the control is clean, else a verdict without the accusation."""
        control = self._control()
        control.suspected = accusation
        control_verdict = control.run(ReportedContext(self._context))
        self._seconds.append(msgspec.structs.replace(control_verdict.seconds, build=0.0))
        if control.accusation is accusation:
            found = f"the task's own module does the same at this moment: {verdict.reason}"
            self._log_line(
                f"the task's own module is accused of the same: {control_verdict.reason}"
            )
        elif not control.has_tried(accusation):
            found = (
                f"the machine is too busy to look for it in the task's own module: {verdict.reason}"
            )
            self._log_line(found)
        else:
            return verdict
        self._evaluation = self._evaluation.in_new_process(tolerated=accusation)
        tolerant = self._run()
        if not tolerant.is_correct:
            return tolerant
        return _with_note(tolerant, found)

    def _run(self) -> Verdict:
        context = ReportedContext(self._context) if self._seconds else self._context
        verdict = self._evaluation.run(context)
        # A later evaluation uses the first one's build.
        build_s = 0.0 if self._seconds else verdict.seconds.build
        self._seconds.append(msgspec.structs.replace(verdict.seconds, build=build_s))
        return verdict

    def _with_all_seconds(self, verdict: Verdict) -> Verdict:
        seconds = Seconds(
            build=sum(each.build for each in self._seconds),
            check=round(sum(each.check for each in self._seconds), 3),
            time=round(sum(each.time for each in self._seconds), 3),
        )
        return msgspec.structs.replace(verdict, seconds=seconds)


def _with_note(verdict: Verdict, note: str) -> Verdict:
    return msgspec.structs.replace(verdict, profile={**(verdict.profile or {}), NOTE: note})
