"""One candidate in as many processes as its verdict needs.

A process may have bad luck for its whole life.  No candidate is rejected for that: only if two
processes are accused of the same, and a control is not: the task's own module as a candidate, at
the same moment.  If the control is accused, too, or could not have been, the machine is at fault:
the candidate is timed again without this accusation, and its verdict says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
        tolerated: dict[Accusation, str] = {}  # what the machine is at fault for, and why
        while (accusation := self._evaluation.accusation) is not None:
            is_repeated = accusation in self._accusations
            if is_repeated:
                found = self._fault_of_machine(accusation, verdict.reason)
                if not found:
                    break
                tolerated[accusation] = found
            else:
                self._accusations[accusation] = verdict.reason
                self._log_line(f"looking at it again, in a new process: {verdict.reason}")
            self._evaluation = self._evaluation.in_new_process(
                frozenset(tolerated), suspected=None if is_repeated else accusation
            )
            verdict = self._run()
        if verdict.is_correct and self._accusations:
            verdict = _with_note(verdict, self._note(tolerated))
        return self._with_all_seconds(verdict), self._evaluation.kernel_profile

    def _note(self, tolerated: Mapping[Accusation, str]) -> str:
        """Return what the candidate was accused of, and why it is not rejected for that."""
        single = [each for key, each in self._accusations.items() if key not in tolerated]
        not_again = f"not so in a second process: {'; '.join(single)}" if single else ""
        return "; ".join(filter(None, (*tolerated.values(), not_again)))

    def _fault_of_machine(self, accusation: Accusation, reason: str) -> str:
        """Judge the task's own module; return why the machine is at fault, "" if it is not."""
        control = self._control()
        control.suspected = accusation
        verdict = control.run(ReportedContext(self._context))
        self._seconds.append(msgspec.structs.replace(verdict.seconds, build=0.0))
        if control.accusation is accusation:
            self._log_line(f"the task's own module is accused of the same: {verdict.reason}")
            return f"the task's own module does the same at this moment: {reason}"
        if control.has_tried(accusation):
            return ""
        found = f"the machine is too busy to look for it in the task's own module: {reason}"
        self._log_line(found)
        return found

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
