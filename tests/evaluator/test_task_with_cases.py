"""A task with cases before a real judge."""

from __future__ import annotations

import msgspec
import pytest
from evaluator_samples import candidate

from actors.evaluator.case_references import combined_baselines, combined_reference
from actors.evaluator.judge import Judge, TaskProblem
from actors.evaluator.timing.baseline_cache import ReferenceBaselines
from actors.evaluator.worker import combine_verdicts
from protocol.layouts import describe
from protocol.values import CaseResult, Outcome, Reference, Task, TaskCase, Verdict

CASES = (
    TaskCase(name="drawn", weight=0.5),
    TaskCase(name="small", weight=0.25, shapes=((3, 64), (3, 64))),
    TaskCase(name="half", weight=0.25, dtype="bfloat16"),
)
WRONG_ON_ONE = "if x.shape[0] == 3: y = y + 1"


@pytest.fixture
def with_cases(task: Task) -> Task:
    return msgspec.structs.replace(task, cases=CASES)


@pytest.mark.long
def test_every_case_is_measured_and_judged(patient_judge: Judge, with_cases: Task) -> None:
    """The reference has a time for each case, and a correct candidate a figure for each."""
    reference = patient_judge.measure(with_cases)
    assert isinstance(reference, Reference)
    assert [
        ("drawn", "float32[32, 64], float32[32, 64]"),
        ("small", "float32[3, 64], float32[3, 64]"),
        ("half", "bfloat16[32, 64], bfloat16[32, 64]"),
    ] == [(case.name, case.inputs) for case in reference.cases]
    assert [case.inputs for case in reference.cases] == [
        case.judged and describe(case.judged.inputs) for case in reference.cases
    ]
    verdict = patient_judge.judge(with_cases, candidate())
    assert isinstance(verdict, Verdict)
    assert Outcome.CORRECT is verdict.verdict, verdict
    assert ["drawn", "small", "half"] == [case.name for case in verdict.cases]
    assert all(case.speedup for case in verdict.cases)
    wrong = patient_judge.judge(with_cases, candidate(forward=WRONG_ON_ONE))
    assert isinstance(wrong, Verdict)
    assert Outcome.WRONG is wrong.verdict
    assert wrong.reason.startswith("case small (float32[3, 64], float32[3, 64]): output")


def test_a_case_that_the_module_refuses_is_named(patient_judge: Judge, task: Task) -> None:
    """What is wrong with one case of a task is said with its name."""
    bad = TaskCase(name="odd", weight=1.0, shapes=((3, 65), (3, 65)))
    found = patient_judge.measure(msgspec.structs.replace(task, cases=(bad,)))
    assert isinstance(found, TaskProblem)
    assert "case odd" in found.reason


def test_rounds_are_combined_case_by_case() -> None:
    """A case that is slow in most rounds is slow in the confirmation, whatever the others give."""

    def round_of(slow: float) -> Verdict:
        return Verdict(
            verdict=Outcome.CORRECT,
            median_us=1.0,
            reference_us=2.0,
            speedup=2.0,
            speedup_ci95=(1.9, 2.1),
            cases=tuple(
                CaseResult(
                    name=name,
                    weight=0.5,
                    median_us=10.0,
                    reference_us=10.0 * ratio,
                    speedup=ratio,
                    speedup_ci95=(ratio * 0.99, ratio * 1.01),
                )
                for name, ratio in (("a", 4.0), ("b", slow))
            ),
        )

    slow = combine_verdicts([round_of(0.9), round_of(0.95), round_of(1.0)])
    assert (0.95, 0.95) == (slow.speedup, slow.cases[1].speedup)
    fast = combine_verdicts([round_of(1.0), round_of(0.95), round_of(1.0)])
    assert fast.speedup == pytest.approx(2.0)
    assert fast.is_faster


def test_times_of_a_reference_are_means_of_its_cases() -> None:
    """torch.compile's time is one only where every case has one, and is pending while one is."""
    measured = [
        Reference(eager_us=eager, compile_us=compiled, inputs=f"float32[{eager:g}]")
        for eager, compiled in ((4.0, 2.0), (16.0, 8.0), (1.0, 1.0))
    ]
    cases = tuple(msgspec.structs.replace(case, weight=1 / 3) for case in CASES)
    found = combined_reference(cases, measured)
    assert (4.0, 16 ** (1 / 3)) == (
        pytest.approx(found.eager_us),
        pytest.approx(found.compile_us),
    )
    assert ["float32[4]", "float32[16]", "float32[1]"] == [case.inputs for case in found.cases]
    pending = [*measured[:2], msgspec.structs.replace(measured[2], baselines_pending=True)]
    assert combined_reference(cases, pending).compile_us is None
    assert combined_reference(cases, pending).baselines_pending
    lacking = [ReferenceBaselines(eager_us=4.0, compile_us=2.0), ReferenceBaselines(eager_us=1.0)]
    assert combined_baselines(cases[:2], lacking) == ReferenceBaselines(eager_us=2.0)
