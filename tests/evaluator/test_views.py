"""Tasks whose outputs lie in their inputs, or that write to one: what a candidate may share."""

from __future__ import annotations

from pathlib import Path

import pytest
import special_corpora

from actors.evaluator.judge import Judge

CANDIDATES = special_corpora.candidates("views", ("strided", "view_then_written"))


@pytest.mark.parametrize("path", CANDIDATES)
def test_a_candidate_shares_memory_only_where_its_task_does(
    patient_judge: Judge, path: Path
) -> None:
    """Views are correct where the task returns views, and copies are correct everywhere.

    An output that the next inputs or the next call change is wrong where the task's is its own.
    So is a change of an input that the task leaves alone.
    """
    special_corpora.rightly_judged(patient_judge, "views", path)
