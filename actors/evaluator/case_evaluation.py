"""One candidate on all cases of its task: an evaluation for each case, and one verdict.

Every case has a reference of its own, and is checked and timed as a task without cases is.  The
first case on which the candidate is not correct decides the outcome, and its verdict names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from actors.case_source import case_task
from actors.evaluator.evaluation import Evaluation, EvaluationRequest
from actors.evaluator.facts.verdict_facts import worst_errors
from actors.evaluator.ipc.layout_checks import describe
from actors.evaluator.ipc.profile import KernelProfile
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.repeated_evaluation import RepeatedEvaluation, ReportedContext
from actors.work_context import EvaluationContext
from protocol.cases import CaseResult, combined_figures
from protocol.settings import Limits
from protocol.values import Seconds, Task, TaskCase, Verdict

MIN_CASE_TIME_S = 2.0  # of timing, for each of several cases


def case_tasks(task: Task) -> list[Task]:
    """Return the task of each case, the heaviest first; the task itself if it has no cases."""
    return [case_task(task, case) for case in task.cases] or [task]


def request_of_case(request: EvaluationRequest, task: Task, limits: Limits) -> EvaluationRequest:
    """Return the request for one case of a task: all cases together take about one task's time.

    A case is timed in full: the best of the task says nothing about one case.
    """
    if not task.cases or request.trial_s is not None:
        return request
    whole_s = limits.time_s if request.time_s is None else request.time_s
    time_s = max(min(whole_s, MIN_CASE_TIME_S), whole_s / len(task.cases))
    return msgspec.structs.replace(request, time_s=time_s, best_speedup=0.0)


class CaseEvaluation:
    """One candidate before the judge, case by case."""

    def __init__(
        self,
        task: Task,
        first: Evaluation,
        fixture_of: Callable[[Task], ReferenceFixture],
        control: Callable[[ReferenceFixture], Evaluation],
        context: EvaluationContext,
        log_line: Callable[[str], None],
    ) -> None:
        """`first`: the evaluation of the heaviest case.  `fixture_of` gives a case's reference,
        and `control` makes the evaluation of the task's own module beside it.
        """
        self._task = task
        self._first = first
        self._fixture_of = fixture_of
        self._control = control
        self._context = context
        self._log_line = log_line
        self.was_lost_under_profiler = False

    def run(self) -> tuple[Verdict, KernelProfile | None]:
        """Return the verdict, and the profile of the heaviest case."""
        results = list(self._results())
        profile = results[0][1]
        verdicts = [verdict for verdict, _profile in results]
        return combined_verdict(self._task.cases, verdicts), profile

    def _results(self) -> Iterator[tuple[Verdict, KernelProfile | None]]:
        """Yield the verdict of one case after the other, up to the first that is not correct."""
        evaluation = self._first
        for number, task in enumerate(case_tasks(self._task)):
            context = self._context if number == 0 else ReportedContext(self._context)
            if number:
                evaluation = self._first.on_fixture(self._fixture_of(task))
            if task.case is not None:
                context.log_step("case", name=task.case.name, inputs=_inputs_of(evaluation))
            repeated = RepeatedEvaluation(
                evaluation, partial(self._control, evaluation.fixture), context, self._log_line
            )
            verdict, profile = repeated.run()
            self.was_lost_under_profiler |= repeated.was_lost_under_profiler
            if task.case is not None and not verdict.is_correct:
                where = f"case {task.case.name} ({_inputs_of(evaluation)})"
                verdict = msgspec.structs.replace(verdict, reason=f"{where}: {verdict.reason}")
            yield verdict, profile
            if not verdict.is_correct:
                return


def _inputs_of(evaluation: Evaluation) -> str:
    return describe(evaluation.fixture.facts.inputs)


def combined_verdict(cases: Sequence[TaskCase], verdicts: Sequence[Verdict]) -> Verdict:
    """Return one verdict of the cases' verdicts; the last one is the only one not correct, if any.

    What is not a figure of time is of the first case, which has the greatest weight.
    """
    last = verdicts[-1]
    if not cases or not last.is_correct:
        spent = _all_seconds(verdicts)
        return msgspec.structs.replace(last, seconds=spent) if cases else last
    results = tuple(
        CaseResult(
            name=case.name,
            weight=case.weight,
            median_us=verdict.median_us,
            reference_us=verdict.reference_us,
            speedup=verdict.speedup,
            speedup_ci95=verdict.speedup_ci95,
        )
        for case, verdict in zip(cases, verdicts, strict=True)
    )
    found = combined_figures(results)
    errors = [each.max_error for each in verdicts if each.max_error is not None]
    facts = verdicts[0].facts
    if facts is not None:
        worst = worst_errors(each.facts.errors for each in verdicts if each.facts)
        facts = msgspec.structs.replace(facts, errors=worst)
    return msgspec.structs.replace(
        verdicts[0],
        median_us=found.median_us,
        reference_us=found.reference_us,
        speedup=found.speedup,
        speedup_ci95=found.speedup_ci95,
        max_error=max(errors, default=None),
        facts=facts,
        seconds=_all_seconds(verdicts),
        cases=results,
    )


def _all_seconds(verdicts: Sequence[Verdict]) -> Seconds:
    """Return the seconds of all cases; the candidate was built once."""
    return Seconds(
        build=verdicts[0].seconds.build,
        check=round(sum(each.seconds.check for each in verdicts), 3),
        time=round(sum(each.seconds.time for each in verdicts), 3),
    )
