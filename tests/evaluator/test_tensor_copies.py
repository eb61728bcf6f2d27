"""Whether a call wrote to its inputs is known without a copy of large ones."""

from __future__ import annotations

import pytest
import torch

from actors.evaluator.children.tensors import tensor_copies
from actors.evaluator.children.tensors.tensor_copies import InputsBefore, has_same_bytes


@pytest.mark.parametrize("at_once", [1 << 28, 64])
@pytest.mark.parametrize("place", [0, 7, 16, 36])
def test_a_change_of_one_element_is_seen(
    at_once: int, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first, a middle and the last piece, which ends between two words of eight bytes."""
    monkeypatch.setattr(tensor_copies, "BYTES_AT_ONCE", at_once)
    inputs = [torch.randn(37), [torch.arange(37, dtype=torch.int8), torch.zeros(0)]]
    before = InputsBefore(inputs)
    assert before.differences(inputs) == [False, False, False]
    inputs[1][0][place] += 1
    assert before.differences(inputs) == [False, True, False]


def test_elements_that_change_places_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that sorts or rolls its input in place leaves the plain sum as it was."""
    monkeypatch.setattr(tensor_copies, "BYTES_AT_ONCE", 64)
    x = torch.randn(64)
    before = InputsBefore([x])
    x.copy_(x.sort().values)
    assert before.differences([x]) == [True]


@pytest.mark.parametrize("at_once", [1 << 28, 64])
def test_bytes_are_compared_in_pieces(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN equals itself, zeros of both signs differ, and a shorter tensor is another one."""
    monkeypatch.setattr(tensor_copies, "BYTES_AT_ONCE", at_once)
    x = torch.full((50,), torch.nan)
    assert has_same_bytes(x, x.clone())
    assert not has_same_bytes(x, x[:16])
    zeros = torch.zeros(50)
    assert not has_same_bytes(zeros, torch.where(torch.arange(50) == 49, -zeros, zeros))
