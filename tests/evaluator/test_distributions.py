"""Inputs of timed calls: as many draws as calls, and now and then other distributions."""

from __future__ import annotations

from pathlib import Path

import pytest
import special_corpora
from corpus.scene import is_credited

from actors.evaluator.judge import Judge
from protocol.values import Outcome

CANDIDATES = special_corpora.candidates("distributions", ("own_range_late",))


@pytest.mark.parametrize("path", CANDIDATES)
def test_a_candidate_gains_nothing_from_how_inputs_are_drawn(
    patient_judge: Judge, path: Path
) -> None:
    """What is computed from a tensor is not asked for again, however few its draws could be.

    A candidate that is right in checks alone on values out of the task's range is wrong.
    """
    verdict = special_corpora.judged(patient_judge, "distributions", path)
    if path.parent.name == "honest":
        assert Outcome.CORRECT is verdict.verdict, verdict
    elif path.stem == "own_range_late":
        assert Outcome.WRONG is verdict.verdict, verdict
    else:
        assert not is_credited(verdict), verdict
