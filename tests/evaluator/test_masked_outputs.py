"""Outputs in which a mask has filled in huge numbers: the others count all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import special_corpora

from actors.evaluator.judge import Judge

CANDIDATES = special_corpora.candidates("masked", ("in_place", "zeros"))


@pytest.mark.parametrize("path", CANDIDATES)
def test_scores_beside_a_mask_are_compared(patient_judge: Judge, path: Path) -> None:
    """A candidate that leaves out what the mask does not fill in is wrong."""
    special_corpora.rightly_judged(patient_judge, "masked", path)
