"""Inputs of whole numbers: what is kept of a call's values is not asked for in the next."""

from __future__ import annotations

from pathlib import Path

import pytest
import special_corpora
from corpus.scene import is_credited

from actors.evaluator.judge import Judge
from protocol.values import Outcome


@pytest.mark.parametrize("path", special_corpora.candidates("tokens", ("rows_kept",)))
def test_a_candidate_that_keeps_rows_of_tokens_is_not_faster(
    patient_judge: Judge, path: Path
) -> None:
    """Slots that are mixed of two draws would hold the same tokens in each call."""
    verdict = special_corpora.judged(patient_judge, "tokens", path)
    assert Outcome.CORRECT is verdict.verdict, verdict
    if path.parent.name == "hostile":
        assert not is_credited(verdict), verdict
