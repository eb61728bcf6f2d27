"""Further evaluations in new processes: when they happen, what they count, what the log says."""

from __future__ import annotations

from typing import cast

from evaluator_samples import ContextRecorder

from actors.evaluator.evaluation import Evaluation
from actors.evaluator.repeated_evaluation import RepeatedEvaluation
from actors.evaluator.sandbox.child_failures import Accusation
from actors.work_context import EvaluationContext
from protocol.values import Outcome, Seconds, Verdict

FROZEN, UNFREEZABLE = Accusation.RAN_WHILE_FROZEN, Accusation.NOT_FREEZABLE
Step = Accusation | None  # None: the process is clean


class ScriptedEvaluation:
    """An evaluation whose processes are accused of what the script says, in turn."""

    kernel_profile = None

    def __init__(
        self,
        script: list[Step],
        tolerated: frozenset[Accusation] = frozenset(),
        suspected: Step = None,
    ) -> None:
        self._script = script
        self.suspected = suspected
        step = script.pop(0)
        self.accusation = None if step in tolerated else step

    def in_new_process(
        self, tolerated: frozenset[Accusation] = frozenset(), suspected: Step = None
    ) -> ScriptedEvaluation:
        return ScriptedEvaluation(self._script, tolerated, suspected)

    def has_tried(self, accusation: Accusation) -> bool:
        return accusation is not Accusation.INPUTS_READ_LATE

    def run(self, context: EvaluationContext) -> Verdict:
        context.candidate_running()
        context.set_activity("timing")
        seconds = Seconds(build=2.0, check=0.5, time=1.0)
        if self.accusation is not None:
            return Verdict(verdict=Outcome.REJECTED, reason=self.accusation, seconds=seconds)
        return Verdict(verdict=Outcome.CORRECT, speedup=1.0, seconds=seconds)


def evaluated(*script: Step, control: Step = None) -> tuple[Verdict, list[str], list[str]]:
    """Return verdict, reports and log lines, when processes do what the script says."""
    steps, lines, context = list(script), list[str](), ContextRecorder()
    verdict, _profile = RepeatedEvaluation(
        cast("Evaluation", ScriptedEvaluation(steps)),
        lambda: cast("Evaluation", ScriptedEvaluation([control])),
        context,
        lines.append,
    ).run()
    assert not steps
    return verdict, context.reports, lines


def test_a_clean_candidate_is_evaluated_once() -> None:
    """A candidate that is accused of nothing does not pay for a second evaluation."""
    verdict, reports, lines = evaluated(None)
    assert (verdict.speedup, reports, lines) == (1.0, ["running", "timing"], [])


def test_one_accusation_is_no_rejection() -> None:
    """A second process that is not accused counts, and the verdict says what was seen."""
    verdict, reports, lines = evaluated(FROZEN, None)
    assert (Outcome.CORRECT, 1.0) == (verdict.verdict, verdict.speedup)
    assert verdict.profile == {"note": "not so in a second process: ran while frozen"}
    assert reports == ["running", "timing", "timing"]
    assert len(lines) == 1


def test_the_same_accusation_in_two_processes_is_a_rejection_if_the_control_is_clean() -> None:
    """The task's own module is judged at the same moment, and is not accused."""
    verdict, _reports, _lines = evaluated(FROZEN, FROZEN)
    assert (Outcome.REJECTED, "ran while frozen") == (verdict.verdict, verdict.reason)
    assert verdict.seconds == Seconds(build=2.0, check=1.5, time=3.0)  # with the control's


def test_what_a_process_is_accused_of_is_looked_for_in_the_next_one_and_in_the_control() -> None:
    """A look by lot may miss in the second process what it found in the first."""
    control = ScriptedEvaluation([None])
    second: list[ScriptedEvaluation] = []

    class First(ScriptedEvaluation):
        def in_new_process(
            self, tolerated: frozenset[Accusation] = frozenset(), suspected: Step = None
        ) -> ScriptedEvaluation:
            second.append(super().in_new_process(tolerated, suspected))
            return second[0]

    RepeatedEvaluation(
        cast("Evaluation", First([FROZEN, FROZEN])),
        lambda: cast("Evaluation", control),
        ContextRecorder(),
        lambda _line: None,
    ).run()
    assert [second[0].suspected, control.suspected] == [FROZEN, FROZEN]


def test_another_accusation_needs_a_process_of_its_own() -> None:
    """Processes with one accusation each are no proof, however many: one of them has to repeat."""
    below = Accusation.BELOW_FLOOR
    assert evaluated(FROZEN, UNFREEZABLE, None)[0].is_correct
    assert evaluated(FROZEN, UNFREEZABLE, below, None)[0].is_correct
    assert Outcome.REJECTED is evaluated(FROZEN, UNFREEZABLE, FROZEN)[0].verdict
    assert Outcome.REJECTED is evaluated(FROZEN, UNFREEZABLE, below, UNFREEZABLE)[0].verdict


def test_where_the_control_is_accused_too_the_candidate_gets_figures_and_a_note() -> None:
    """The machine is at fault; another accusation of the control excuses nothing."""
    verdict, _reports, _lines = evaluated(FROZEN, FROZEN, FROZEN, control=FROZEN)
    assert verdict.is_correct
    assert verdict.profile is not None
    assert "the task's own module does the same" in verdict.profile["note"]
    assert Outcome.REJECTED is evaluated(FROZEN, FROZEN, control=UNFREEZABLE)[0].verdict


def test_after_an_accusation_that_is_the_machines_fault_another_one_is_repeated_as_well() -> None:
    """It needs two processes and a control of its own, as if it were the first."""
    once, _reports, _lines = evaluated(FROZEN, FROZEN, UNFREEZABLE, None, control=FROZEN)
    assert once.is_correct
    assert once.profile is not None
    assert "the task's own module does the same" in once.profile["note"]
    assert once.profile["note"].endswith("not so in a second process: not freezable")
    twice, _reports, _lines = evaluated(FROZEN, FROZEN, UNFREEZABLE, UNFREEZABLE, control=FROZEN)
    assert Outcome.REJECTED is twice.verdict


def test_a_control_that_could_not_be_accused_clears_no_candidate_and_rejects_none() -> None:
    """On a busy machine some looks say nothing: then the candidate gets figures and a note."""
    late = Accusation.INPUTS_READ_LATE
    verdict, _reports, lines = evaluated(late, late, late)
    assert verdict.is_correct
    assert verdict.profile is not None
    assert "the machine is too busy to look for it" in verdict.profile["note"]
    assert "the machine is too busy" in lines[-1]
