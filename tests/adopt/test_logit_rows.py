"""Outputs as logits: divergence, and how many of the largest elements are the same."""

from __future__ import annotations

import torch

from actors.adopt.check.logit_rows import LogitRows

LOGITS = torch.randn(64, 100, generator=torch.Generator().manual_seed(0))


def rows(fitted: torch.Tensor, dtype: torch.dtype = torch.float32) -> LogitRows:
    found = LogitRows(is_exact=True)
    found.add(LOGITS.to(dtype), fitted.to(dtype), LOGITS.double())
    return found


def test_equal_rows_agree_wholly() -> None:
    """The same logits: nothing diverges, in half precision by no more than rounding does."""
    found = rows(LOGITS).agreement()
    assert found is not None
    assert (64, 1.0, 1.0) == (found.rows, found.top_1, found.top_5)
    assert "" == rows(LOGITS, torch.bfloat16).problem(2.0, 16.0)


def test_a_divergence_beyond_the_originals_own_is_a_problem() -> None:
    """A shift of all logits of a row is none, another temperature is one."""
    assert "" == rows(LOGITS + 0.5).problem(2.0, 16.0)
    assert "(KL)" in rows(LOGITS * 1.3).problem(2.0, 16.0)
    swapped = rows(-LOGITS).agreement()
    assert swapped is not None
    assert swapped.top_1 < 0.1


def test_short_rows_and_whole_numbers_are_not_logits() -> None:
    """Five classes, token numbers, and a vector are compared by their values only."""
    found = LogitRows(is_exact=True)
    for values in (LOGITS[:, :5], LOGITS.long(), LOGITS.flatten()):
        found.add(values, values, values)
    assert found.agreement() is None
