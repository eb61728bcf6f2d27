"""Inputs of timed calls: as many draws as calls, and now and then other distributions."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus.scene import is_credited

from actors.evaluator.judge import Judge
from protocol.values import Outcome, Task, Verdict

CORPUS = Path(__file__).parent.parent / "corpus" / "distributions"
IN_GATE = "own_range_late"
CANDIDATES = [
    pytest.param(
        path,
        id=f"{path.parent.name}-{path.stem}",
        marks=() if path.stem in IN_GATE else (pytest.mark.long,),
    )
    for path in sorted(CORPUS.glob("ho*/*.py"))
]


@pytest.mark.parametrize("path", CANDIDATES)
def test_a_candidate_gains_nothing_from_how_inputs_are_drawn(
    patient_judge: Judge, path: Path
) -> None:
    """What is computed from a tensor is not asked for again, however few its draws could be.

    A candidate that is right in checks alone on values out of the task's range is wrong.
    """
    task = Task(name="distributions", source=(CORPUS / "task.py").read_text(encoding="utf-8"))
    verdict = patient_judge.judge(task, path.read_text(encoding="utf-8"))
    assert isinstance(verdict, Verdict)
    if path.parent.name == "honest":
        assert Outcome.CORRECT is verdict.verdict, verdict
    elif path.stem == "own_range_late":
        assert Outcome.WRONG is verdict.verdict, verdict
    else:
        assert not is_credited(verdict), verdict
