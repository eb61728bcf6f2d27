"""The evaluator as an actor.

It answers `MeasureReference` with `ReferenceMeasured`, `MeasureBaselines` with `BaselinesMeasured`,
and `Evaluate` with `Evaluated`.
"""

from __future__ import annotations

import math
from statistics import median

import msgspec

from actors.evaluator.evaluation import Inspected
from actors.evaluator.facts.verdict_facts import worst_errors
from actors.evaluator.judge import Judge, TaskProblem
from actors.evaluator.ordered_judging import judge_best_variant, require_verdict
from actors.evaluator.release_stage import essential_failure
from actors.evaluator.sandbox.child_client import EvaluationCancelledError
from actors.evaluator.sandbox.zygote_client import (
    DeviceQuarantinedError,
    JudgeUnavailableError,
    ReferenceFailedError,
)
from actors.evaluator.timing.intervals import median_interval
from actors.release.composition import drop_in_source
from actors.work_context import EvaluationContext, WorkContext
from protocol.cases import combined_figures
from protocol.messages import (
    STOPPED_EARLY,
    BaselinesMeasured,
    Evaluate,
    Evaluated,
    HandedBack,
    MeasureBaselines,
    MeasureReference,
    ReferenceMeasured,
    Work,
)
from protocol.values import (
    MAX_SHOWN_GROUPS,
    Device,
    Outcome,
    Role,
    Seconds,
    TimedGroups,
    Verdict,
)

# What a signal from outside looks like.
MEMORY_SENSITIVE_OUTCOMES = (Outcome.CRASHED, Outcome.COMPILE_FAILED)
MAX_FAILURES = 3  # in a row, then the actor ends and the supervisor decides
MIN_SIGN_ROUNDS = 6  # the fewest rounds of which a sign interval holds 95 %


class EvaluatorWorker:
    """One device's evaluator: one candidate on the device, others being built at the same time.

    `candidate_running` is reported when a candidate's turn on the device begins, not when it is
    built, though a build runs its code, too.  A build has no device and is confined more tightly.
    If it counted, one candidate that ends the evaluator would be charged to all that are being
    built.
    """

    role = Role.EVALUATOR

    def __init__(self, judge: Judge) -> None:
        self.credit = 1 + judge.ahead
        self.judge = judge
        self.device: Device | None = judge.device
        self._failures = 0

    def work(
        self, request: Work, context: WorkContext
    ) -> ReferenceMeasured | BaselinesMeasured | Evaluated | HandedBack:
        """Measure a task or judge a candidate; hand back what can't be done now."""
        try:
            result = self._work(request, context)
        except EvaluationCancelledError:
            return HandedBack(lease=request.lease, reason=STOPPED_EARLY)
        except JudgeUnavailableError as error:
            self._failures += 1
            if self._failures >= MAX_FAILURES:
                raise
            # A task whose own module fails here will fail again.  A machine that can't start a
            # process, or has no room on its disk, says nothing about the task.
            return HandedBack(
                lease=request.lease,
                reason=str(error),
                quarantined=isinstance(error, DeviceQuarantinedError),
                reference_failed=isinstance(error, ReferenceFailedError),
            )
        self._failures = 0
        if (
            isinstance(result, Evaluated)
            and result.verdict.verdict in MEMORY_SENSITIVE_OUTCOMES
            and context.is_revoked()
        ):
            # A batch system signals every process of a job: the candidate did not cause that.
            return HandedBack(lease=request.lease, reason=STOPPED_EARLY)
        return result

    def _work(
        self, request: Work, context: WorkContext
    ) -> ReferenceMeasured | BaselinesMeasured | Evaluated:
        if isinstance(request, MeasureReference):
            return self._measure(request, NamedContext(context, request.task.name))
        if isinstance(request, MeasureBaselines):
            return self._measure_baselines(request, NamedContext(context, request.task.name))
        if isinstance(request, Evaluate):
            name = request.lease.work.rpartition("/")[0]
            return self._evaluate(request, NamedContext(context, name))
        raise TypeError(f"an evaluator was leased a {type(request).__name__}")

    def _measure(self, request: MeasureReference, context: EvaluationContext) -> ReferenceMeasured:
        context.set_activity("measuring")
        measured = self.judge.measure(
            request.task, context, defer_baselines=request.defer_baselines
        )
        if isinstance(measured, TaskProblem):
            context.log_step("task can't be judged", reason=measured.reason)
            return ReferenceMeasured(lease=request.lease, problem=measured.reason)
        context.log_step(
            "measured",
            eager_us=measured.eager_us,
            compile_us=measured.compile_us,
            max_autotune_us=measured.max_autotune_us,
            later="torch.compile, while the device is idle" if measured.baselines_pending else None,
        )
        return ReferenceMeasured(lease=request.lease, reference=measured)

    def _measure_baselines(
        self, request: MeasureBaselines, context: EvaluationContext
    ) -> BaselinesMeasured:
        """Measure the reference under torch.compile; a loss of this process is charged to it."""
        context.set_activity("measuring torch.compile of")
        context.candidate_running()
        measured = self.judge.measure_baselines(request.task, request.reference, context)
        context.log_step(
            "baselines measured",
            compile_us=measured.compile_us,
            max_autotune_us=measured.max_autotune_us,
            note=measured.baselines_note or None,
        )
        return BaselinesMeasured(
            lease=request.lease,
            compile_us=measured.compile_us,
            max_autotune_us=measured.max_autotune_us,
            note=measured.baselines_note,
        )

    def _evaluate(self, request: Evaluate, context: EvaluationContext) -> Evaluated:
        if request.rounds > 1:
            with self.judge.turn(request.task, context):
                return self._confirm(request, context)
        inspected: Inspected = "yes" if request.profile else "contender"
        verdict = judge_best_variant(
            self.judge,
            request.task,
            request.source,
            context,
            lambda source, once: self._judge(request, once, source, inspected=inspected),
        )
        _log_verdict(verdict, context)
        return Evaluated(lease=request.lease, verdict=verdict)

    def _judge(
        self,
        request: Evaluate,
        context: EvaluationContext,
        source: str,
        *,
        inspected: Inspected = "no",
    ) -> Verdict:
        verdict = self.judge.judge(
            request.task,
            source,
            context,
            built=self.judge.build(source, request.task.modules, context),
            labelled_source=request.source,
            best_speedup=request.best_speedup,
            inspected=inspected,
        )
        return require_verdict(verdict)

    def _confirm(self, request: Evaluate, context: EvaluationContext) -> Evaluated:
        """Judge one of the best as its users will have it: as a drop-in file, several times."""
        context.candidate_running()
        if request.is_doubtful:
            verdict = self._judge(request, context, request.source)
            if not verdict.is_correct or verdict.is_slower:
                _log_verdict(verdict, context)
                return Evaluated(lease=request.lease, verdict=verdict)
        release = self.judge.release(request.task, request.source, context)
        if isinstance(release, TaskProblem):
            raise ReferenceFailedError(release.reason)
        reason = essential_failure(release)
        if reason:
            verdict = Verdict(verdict=Outcome.WRONG, stage="check", reason=reason, release=release)
            _log_verdict(verdict, context)
            return Evaluated(lease=request.lease, verdict=verdict)
        source = drop_in_source(request.task.source, request.source, release)
        verdict = combine_verdicts(self._rounds(request, context, source))
        context.set_activity("inspecting")
        verdict = self.judge.inspect(request.task, source, verdict, context)
        _log_verdict(verdict, context)
        released = msgspec.structs.replace(verdict, release=release)
        return Evaluated(lease=request.lease, verdict=released)

    def _rounds(self, request: Evaluate, context: EvaluationContext, source: str) -> list[Verdict]:
        """Judge a source in several rounds, each in fresh processes."""
        verdicts: list[Verdict] = []
        while not verdicts or not has_enough(verdicts, request.rounds, request.most_rounds):
            number, least = len(verdicts) + 1, request.rounds
            why = "the interval is still wide" if number > least else None
            most = max(least, request.most_rounds)
            context.log_step("next look in fresh processes", look=number, at_most=most, why=why)
            try:
                verdict = self._judge(request, context, source)
            except EvaluationCancelledError:
                if len(verdicts) < request.rounds:
                    raise
                break  # there is no time for more: the verdict is made of the rounds so far
            verdicts.append(verdict)
        return verdicts

    def close(self) -> None:
        """End every child."""
        self.judge.close()


class NamedContext:
    """The context of a lease whose activities name its task or node: `timing relu/3`."""

    def __init__(self, context: EvaluationContext, name: str) -> None:
        self._context = context
        self._name = name
        self.log_step = context.log_step
        self.candidate_running = context.candidate_running
        self.is_revoked = context.is_revoked

    def set_activity(self, text: str) -> None:
        """Report an activity with the name."""
        self._context.set_activity(f"{text} {self._name}")


def _log_verdict(verdict: Verdict, context: EvaluationContext) -> None:
    low, high = verdict.speedup_ci95 or (None, None)
    context.log_step(
        "verdict",
        verdict=str(verdict.verdict),
        speedup=_rounded(verdict.speedup),
        low=_rounded(low),
        high=_rounded(high),
        median_us=_rounded(verdict.median_us),
        reference_us=_rounded(verdict.reference_us),
        failed_in=verdict.stage or None,
        reason=verdict.reason[:200] or None,
        labels=", ".join(verdict.labels) or None,
    )


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else float(f"{figure:.4g}")


# --- several rounds as one verdict ---------------------------------------------------------------


def has_enough(verdicts: list[Verdict], least: int, most: int) -> bool:
    """Whether to stop: a round failed, the interval is not wide, or `most` rounds are done.

    A wide interval that is below 1 is enough, too: it is no winner's.  The interval is only looked
    at after every `least` rounds, so that no lucky moment in between ends the rounds.
    """
    if not verdicts[-1].is_correct or len(verdicts) >= max(least, most):
        return True
    if len(verdicts) % least:
        return False
    found = combine_verdicts(verdicts)
    return not found.is_wide or found.is_slower


def combine_verdicts(verdicts: list[Verdict]) -> Verdict:
    """Return the first verdict that is not correct, or one of all of them.

    The figures are the medians.  The rounds ran in fresh processes, so the interval covers what
    differs from process to process, such as the place of memory.  The interval of a few rounds
    reaches from the lowest to the highest bound.  From six rounds on it is the 95 % sign interval
    of the rounds' figures, so that further rounds make it narrower.
    """
    for verdict in verdicts:
        if not verdict.is_correct:
            return verdict
    first = verdicts[0]
    if first.cases:
        return _combine_cases(verdicts)
    median_us = _median([verdict.median_us for verdict in verdicts])
    return Verdict(
        verdict=first.verdict,
        median_us=median_us,
        reference_us=_median([verdict.reference_us for verdict in verdicts]),
        speedup=_median([verdict.speedup for verdict in verdicts]),
        speedup_ci95=_interval(verdicts),
        max_error=max((v.max_error for v in verdicts if v.max_error is not None), default=None),
        log=first.log,
        profile=first.profile,
        seconds=Seconds(
            build=sum(verdict.seconds.build for verdict in verdicts),
            check=sum(verdict.seconds.check for verdict in verdicts),
            time=sum(verdict.seconds.time for verdict in verdicts),
        ),
        sandbox_level=min(verdict.sandbox_level for verdict in verdicts),
        device=first.device,
        groups=_groups(verdicts),
        facts=first.facts
        and msgspec.structs.replace(
            first.facts,
            median_us=median_us,
            errors=worst_errors(verdict.facts.errors for verdict in verdicts if verdict.facts),
        ),
    )


def _combine_cases(verdicts: list[Verdict]) -> Verdict:
    """Return the rounds of a task with cases as one verdict: case by case, and then of all."""
    cases = []
    for number, first in enumerate(verdicts[0].cases):
        rounds = [
            Verdict(
                verdict=verdict.verdict,
                median_us=verdict.cases[number].median_us,
                reference_us=verdict.cases[number].reference_us,
                speedup=verdict.cases[number].speedup,
                speedup_ci95=verdict.cases[number].speedup_ci95,
            )
            for verdict in verdicts
        ]
        one = combine_verdicts(rounds)
        cases.append(
            msgspec.structs.replace(
                first,
                median_us=one.median_us,
                reference_us=one.reference_us,
                speedup=one.speedup,
                speedup_ci95=one.speedup_ci95,
            )
        )
    whole = combine_verdicts([msgspec.structs.replace(each, cases=()) for each in verdicts])
    figures = combined_figures(cases)
    return msgspec.structs.replace(
        whole,
        median_us=figures.median_us,
        reference_us=figures.reference_us,
        speedup=figures.speedup,
        speedup_ci95=figures.speedup_ci95,
        cases=tuple(cases),
    )


def _groups(verdicts: list[Verdict]) -> TimedGroups | None:
    """Return some groups of each round, as many as a verdict shows."""
    rounds = [verdict.groups for verdict in verdicts if verdict.groups is not None]
    most = MAX_SHOWN_GROUPS // max(1, len(rounds))
    if not rounds:
        return None
    return TimedGroups(
        reference_us=tuple(us for groups in rounds for us in groups.reference_us[:most]),
        candidate_us=tuple(us for groups in rounds for us in groups.candidate_us[:most]),
    )


def _interval(verdicts: list[Verdict]) -> tuple[float, float] | None:
    ratios = [verdict.speedup for verdict in verdicts if verdict.speedup is not None]
    if len(ratios) >= MIN_SIGN_ROUNDS:
        interval = median_interval([math.log(ratio) for ratio in ratios])
        return interval and (math.exp(interval[0]), math.exp(interval[1]))
    bounds = [verdict.speedup_ci95 for verdict in verdicts if verdict.speedup_ci95]
    if not bounds:
        return None
    # The interval must also cover the figure of a round that has no interval.
    bounds += [(ratio, ratio) for ratio in ratios]
    return min(low for low, _ in bounds), max(high for _, high in bounds)


def _median(figures: list[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return median(known) if known else None
