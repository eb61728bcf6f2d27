"""What a module writes to its inputs is a result of its calls: a cache that its caller owns."""

from __future__ import annotations

from pathlib import Path

import pytest
import special_corpora

from actors.evaluator.judge import Judge

CANDIDATES = special_corpora.candidates(
    "written_inputs", ("in_cache", "cache_left", "cache_left_late")
)
SMALL_STEPS = special_corpora.candidates("small_steps", ("other_order", "step_left"))


@pytest.mark.parametrize("path", CANDIDATES)
def test_a_cache_of_the_caller_is_written(patient_judge: Judge, path: Path) -> None:
    """A winner that left it as it was passed all checks, and would have been shipped."""
    reason = special_corpora.rightly_judged(patient_judge, "written_inputs", path)
    assert not reason or "input 1, to which the module writes" in reason
    assert ("in a timed call" in reason) == (path.stem == "cache_left_late")


@pytest.mark.parametrize("path", SMALL_STEPS)
def test_a_small_step_is_made(patient_judge: Judge, path: Path) -> None:
    """A step of 1e-4 of the weights was right if it was not made, and 1.7 times as fast."""
    reason = special_corpora.rightly_judged(patient_judge, "small_steps", path)
    assert not reason or "to which the module writes (what it adds)" in reason
