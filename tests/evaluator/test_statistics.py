"""Tasks whose calls change their own buffers: a candidate's calls change them likewise."""

from __future__ import annotations

from pathlib import Path

import pytest
import special_corpora

from actors.evaluator.judge import Judge
from protocol.values import Outcome, Reference, Task, Verdict

CANDIDATES = special_corpora.candidates("statistics", ("plain", "renamed", "left_out"))
REASONS = {
    "left_out": "calls: buffer bn.running_mean[0]: expected ",
    "uncounted": "calls: buffer bn.num_batches_tracked: expected ",
    "biased": "calls: buffer bn.running_var[0]: expected ",
    "without_buffers": "calls: ModelNew has no buffer bn.",
}


def task() -> Task:
    return Task(name="statistics", source=special_corpora.task_source("statistics"))


@pytest.mark.parametrize("path", CANDIDATES)
def test_what_a_call_changes_in_the_module_is_compared(patient_judge: Judge, path: Path) -> None:
    """A winner is a drop-in: it trains on, and is saved, with the statistics of its task."""
    verdict = patient_judge.judge(task(), path.read_text(encoding="utf-8"))
    assert isinstance(verdict, Verdict)
    if path.parent.name == "honest":
        assert Outcome.CORRECT is verdict.verdict, verdict
        # Calls in between have changed the reference's own buffers.
        again = patient_judge.judge(task(), path.read_text(encoding="utf-8"))
        assert isinstance(again, Verdict)
        assert Outcome.CORRECT is again.verdict, again
    else:
        assert Outcome.WRONG is verdict.verdict, verdict
        assert REASONS[path.stem] in verdict.reason


def test_a_task_says_what_its_calls_change(patient_judge: Judge) -> None:
    """Agents read it before they write anything."""
    reference = patient_judge.measure(task())
    assert isinstance(reference, Reference)
    assert reference.facts is not None
    (line,) = [each for each in reference.facts.rule_lines if "Each call of Model" in each]
    assert "bn.running_mean, bn.running_var, bn.num_batches_tracked" in line
