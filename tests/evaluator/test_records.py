"""Keywords, dataclasses and named tuples among a task's inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from actors.evaluator.judge import Judge
from protocol.values import Outcome, Task, Verdict

TASK = """
from dataclasses import dataclass
from typing import NamedTuple

import torch


@dataclass
class Batch:
    x: torch.Tensor
    keep: torch.Tensor


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@dataclass(frozen=True)
class Out:
    y: torch.Tensor
    any_kept: torch.Tensor
    extra: object = None


class Model(torch.nn.Module):
    def forward(self, batch, pair, ids=None, scale=2.0):
        z = torch.where(batch.keep.unsqueeze(-1), batch.x * scale, pair.left - pair.right)
        return Out(z[ids], batch.keep.any()), {"max": z.max(-1), "ids": ids.flip(0)}


def get_inputs():
    batch = Batch(torch.randn(8, 4), torch.rand(8) < 0.5)
    pair = Pair(torch.randn(8, 4), torch.randn(8, 4))
    return (batch,), {"scale": 3.0, "pair": pair, "ids": torch.randperm(8)}


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("old", "new", "outcome", "reason"),
    [
        ("class Batch", "class Renamed", Outcome.CORRECT, ""),  # a stand-in has its fields
        ("keep.any()", "keep.all()", Outcome.WRONG, "output 1: expected True"),
        ("ids.flip(0)", "ids.flip(0).int()", Outcome.WRONG, "output[1]['ids'] has dtype int32"),
        ("Out(z[ids], batch.keep.any())", "(z[ids], 1, None)", Outcome.WRONG, "a dataclass of 3"),
    ],
)
def test_records_cross_to_a_candidate_and_back(
    patient_judge: Judge, old: str, new: str, outcome: Outcome, reason: str
) -> None:
    """Booleans and integers inside are compared exactly, and fields by their names."""
    task = Task(name="records", source=TASK)
    candidate = TASK.partition("def get_inputs")[0].replace("class Model", "class ModelNew")
    verdict = patient_judge.judge(task, candidate.replace(old, new))
    assert isinstance(verdict, Verdict)
    assert outcome is verdict.verdict, verdict
    assert reason in verdict.reason


@pytest.fixture
def positional(torch: ModuleType) -> Callable[..., Any]:
    assert torch
    from actors.evaluator.children.tensors.call_arguments import positional_inputs

    return positional_inputs


def forward(self: object, x: int, y: int = 5, *, strict: bool = False) -> None:
    """A forward to be called."""


def test_keywords_become_positions(positional: Callable[..., Any]) -> None:
    """In the order of forward's parameters; one that is left out before another has its default."""
    assert [1, 2] == positional({"y": 2, "x": 1}, forward)
    assert [1] == positional({"x": 1}, forward)
    assert [1, 2] == positional(([1], {"y": 2}), forward)
    assert [1, {"y": 2}] == positional([1, {"y": 2}], forward)  # a list has positions alone
    assert [3, {}] == positional((3, {}), forward)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ({"y": 2}, "gives no x"),
        ({"x": 1, "z": 2}, "gives z by keyword"),
        ({"x": 1, "strict": True}, "gives strict by keyword"),
        (([1], {"x": 2}), "gives x twice"),
        (7, "returns a int"),
    ],
)
def test_arguments_that_do_not_fit_are_told(
    positional: Callable[..., Any], made: object, expected: str
) -> None:
    """One line, before a module is called."""
    with pytest.raises(ValueError, match=expected):
        positional(made, forward)


def test_a_record_keeps_its_layout(torch: ModuleType) -> None:
    """A stand-in has the same fields; a class of a module that can be imported is that class."""
    from torch.nn.utils.rnn import PackedSequence

    from actors.evaluator.children.tensors.tensor_bytes import assemble, layout_of, tensors_in
    from actors.evaluator.children.tensors.tensor_copies import clone

    packed = torch.nn.utils.rnn.pack_sequence([torch.randn(3), torch.randn(2)])
    layout = layout_of(packed)
    again = assemble(layout, lambda leaf: torch.zeros(leaf.shape))
    assert isinstance(again, PackedSequence)
    assert layout_of(clone(packed)) == layout
    assert 2 == len(list(tensors_in(packed)))
    assert "tuple" == layout_of(torch.randn(3, 2).max(-1)).kind  # type: ignore[union-attr]
