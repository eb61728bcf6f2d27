"""Further evaluations in new processes: when they happen, what they count, what the log says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from evaluator_samples import ContextRecorder

from actors.evaluator.evaluation import Evaluation
from actors.evaluator.repeated_evaluation import RepeatedEvaluation
from actors.evaluator.sandbox.child_failures import Accusation
from actors.evaluator.timing import audit
from actors.evaluator.timing.audit import FreshBlock, GroupClaim, TimedBlock
from actors.work_context import EvaluationContext
from protocol.values import Outcome, Seconds, Verdict


def claim(us: float, *, input_us: float = 250.0, reference_us: float = 370.0) -> GroupClaim:
    """A group of a memory-bound kernel: ten fresh calls of either side."""

    def side(known_us: float, fresh_us: float, transfer_us: float) -> tuple[TimedBlock, TimedBlock]:
        fresh = FreshBlock(calls=10, us=fresh_us, input_us=transfer_us, output_us=140.0)
        return TimedBlock(us=known_us, fresh=fresh), TimedBlock(us=known_us)

    return GroupClaim(
        reference=side(reference_us, reference_us + 8, 250.0),
        candidate=side(us, 378.0, input_us),
        on_gpu=True,
    )


HONEST = [claim(370.0)] * 8
SLOW_INPUTS = [claim(370.0, input_us=360.0)] * 8
CACHED_RESULTS = [claim(30.0)] * 8


FROZEN, UNCLAIMED = Accusation.RAN_WHILE_FROZEN, Accusation.UNCLAIMED_WORK
Script = list[Sequence[GroupClaim] | Accusation]


class ScriptedEvaluation:
    """An evaluation whose processes claim what the script says, or are accused of it, in turn."""

    kernel_profile = None

    def __init__(
        self,
        script: Script,
        earlier: Sequence[GroupClaim] = (),
        tolerated: Accusation | None = None,
    ) -> None:
        self._script, self._earlier = script, earlier
        step = script.pop(0)
        if step is tolerated:
            step = HONEST
        self.accusation = step if isinstance(step, Accusation) else None
        self._claims = () if isinstance(step, Accusation) else step

    @property
    def doubted_claims(self) -> Sequence[GroupClaim]:
        return self._claims if self._claims and audit.is_doubtful(self._claims) else ()

    def in_new_process(self, tolerated: Accusation | None = None) -> ScriptedEvaluation:
        return ScriptedEvaluation(self._script, self.doubted_claims, tolerated)

    def run(self, context: EvaluationContext) -> Verdict:
        context.candidate_running()
        context.set_activity("timing")
        seconds = Seconds(build=2.0, check=0.5, time=1.0)
        if self.accusation is not None:
            return Verdict(verdict=Outcome.REJECTED, reason=self.accusation, seconds=seconds)
        claims = audit.counted_groups(self._earlier, self._claims)
        return Verdict(
            verdict=Outcome.CORRECT,
            speedup=audit.audited_timing(claims).speedup,
            seconds=seconds,
        )


def evaluated(
    *script: Sequence[GroupClaim] | Accusation, control: Accusation | None = None
) -> tuple[Verdict, list[str], list[str]]:
    """Return verdict, reports and log lines, when processes claim what the script says."""
    steps, lines, context = list(script), list[str](), ContextRecorder()
    verdict, _profile = RepeatedEvaluation(
        cast("Evaluation", ScriptedEvaluation(steps)),
        lambda: cast("Evaluation", ScriptedEvaluation([control or HONEST])),
        context,
        lines.append,
    ).run()
    assert not steps
    return verdict, context.reports, lines


def test_an_undoubted_candidate_is_evaluated_once() -> None:
    """A candidate without a doubt does not pay for a second evaluation."""
    verdict, reports, lines = evaluated(HONEST)
    assert (verdict.speedup, reports, lines) == (pytest.approx(1.0), ["running", "timing"], [])


def test_a_process_with_slow_input_transfer_costs_an_honest_candidate_nothing() -> None:
    """Its second process is not slow, and is believed; the log says why it took longer."""
    verdict, reports, lines = evaluated(SLOW_INPUTS, HONEST)
    assert verdict.speedup == pytest.approx(1.0)
    assert reports == ["running", "timing", "timing"]  # it is charged once
    assert len(lines) == 1
    assert verdict.seconds == Seconds(build=2.0, check=1.0, time=2.0)


@pytest.mark.parametrize("second", [CACHED_RESULTS, [*CACHED_RESULTS[:5], *HONEST[:3]], HONEST])
def test_a_candidate_that_caches_results_is_not_credited(second: Sequence[GroupClaim]) -> None:
    """Caching again, caching now and then, and honesty in the second process gain nothing."""
    verdict, _reports, _lines = evaluated(CACHED_RESULTS, second)
    assert verdict.speedup is not None
    assert verdict.speedup < 1.1


def test_one_accusation_is_no_rejection() -> None:
    """A second process that is not accused counts, and the verdict says what was seen."""
    verdict, reports, lines = evaluated(FROZEN, HONEST)
    assert (Outcome.CORRECT, pytest.approx(1.0)) == (verdict.verdict, verdict.speedup)
    assert verdict.profile == {"note": "not so in a second process: ran while frozen"}
    assert reports == ["running", "timing", "timing"]
    assert len(lines) == 1


def test_the_same_accusation_in_two_processes_is_a_rejection_if_the_control_is_clean() -> None:
    """The task's own module is judged at the same moment, and is not accused."""
    verdict, _reports, _lines = evaluated(FROZEN, FROZEN)
    assert (Outcome.REJECTED, "ran while frozen") == (verdict.verdict, verdict.reason)
    assert verdict.seconds == Seconds(build=2.0, check=1.5, time=3.0)  # with the control's


def test_another_accusation_needs_a_process_of_its_own() -> None:
    """Two processes with one accusation each are no proof; a third one decides."""
    assert evaluated(FROZEN, UNCLAIMED, HONEST)[0].is_correct
    assert Outcome.REJECTED is evaluated(FROZEN, UNCLAIMED, FROZEN)[0].verdict
    assert Outcome.REJECTED is evaluated(FROZEN, UNCLAIMED, Accusation.BELOW_FLOOR)[0].verdict


def test_where_the_control_is_accused_too_the_candidate_gets_figures_and_a_note() -> None:
    """The machine is at fault; another accusation of the control excuses nothing."""
    verdict, _reports, _lines = evaluated(FROZEN, FROZEN, FROZEN, control=FROZEN)
    assert verdict.is_correct
    assert verdict.profile is not None
    assert "the task's own module does the same" in verdict.profile["note"]
    assert Outcome.REJECTED is evaluated(FROZEN, FROZEN, control=UNCLAIMED)[0].verdict
    # Without the accusation that is the machine's fault, any other one still counts.
    rejected, _reports, _lines = evaluated(FROZEN, FROZEN, UNCLAIMED, control=FROZEN)
    assert Outcome.REJECTED is rejected.verdict


def test_a_doubt_after_an_accusation_is_looked_at_again() -> None:
    """The figures after an accusation are held to the same standard as any others."""
    verdict, _reports, _lines = evaluated(FROZEN, CACHED_RESULTS, CACHED_RESULTS)
    assert verdict.speedup is not None
    assert verdict.speedup < 1.1
