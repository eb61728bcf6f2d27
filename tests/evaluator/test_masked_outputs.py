"""Outputs in which a mask has filled in huge numbers: the others count all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import special_corpora

from actors.evaluator.judge import Judge
from protocol.values import Outcome, Task, Verdict

CANDIDATES = special_corpora.candidates("masked", ("in_place", "zeros"))


@pytest.mark.parametrize("path", CANDIDATES)
def test_scores_beside_a_mask_are_compared(patient_judge: Judge, path: Path) -> None:
    """A candidate that leaves out what the mask does not fill in is wrong."""
    task = Task(name="masked", source=special_corpora.task_source("masked"))
    verdict = patient_judge.judge(task, path.read_text(encoding="utf-8"))
    assert isinstance(verdict, Verdict)
    expected = Outcome.CORRECT if path.parent.name == "honest" else Outcome.WRONG
    assert expected is verdict.verdict, verdict
