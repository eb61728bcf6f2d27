"""On draws of other kinds than the task's own a candidate may be less exact, not otherwise."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from referee_samples import prepared_task, reason

if TYPE_CHECKING:
    import torch as torch_types

# A product whose columns are normalised over the batch: rows that are large add to each column's
# deviation, and the others' outputs come from sums that nearly cancel.
TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm = torch.nn.Linear(2048, 64)
        self.norm = torch.nn.BatchNorm1d(64)

    def forward(self, x):
        return self.norm(self.gemm(x))

def get_inputs():
    return [torch.rand(512, 2048)]

def get_init_inputs():
    return []
"""

ATTENTION = """
import torch

class Model(torch.nn.Module):
    def forward(self, query, key, value):
        return torch.nn.functional.scaled_dot_product_attention(query, key, value)

def get_inputs():
    return [torch.randn(2, 4, 128, 64) for _ in range(3)]

def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task's file is written where the process works."""
    monkeypatch.chdir(tmp_path)


def rounded(x: torch_types.Tensor, bits: int) -> torch_types.Tensor:
    """Return float32 numbers with so many bits: two bfloat16 parts have 16 to 17."""
    import torch

    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.round(mantissa * 2**bits) / 2**bits, exponent)


@pytest.mark.parametrize(("bits", "is_right"), [(16, True), (11, False), (8, False)])
@pytest.mark.parametrize("kind", ["plain", "uneven", "shifted", "blocks"])
def test_split_operands_are_right_on_each_kind(
    torch: ModuleType, kind: str, bits: int, is_right: bool
) -> None:
    """Operands in two bfloat16 parts pass; with the digits of TF32 or one bfloat16 they do not."""
    from actors.evaluator.children.reference_round import ReferenceRound

    task = prepared_task(TASK)
    (x,) = task.inputs(2, kind)  # type: ignore[arg-type]
    gemm = task.model.gemm
    got = task.model.norm(rounded(x, bits) @ rounded(gemm.weight, bits).T + gemm.bias).detach()
    found = ReferenceRound([x], kind)  # type: ignore[arg-type]
    found.call(task, 0)

    told = reason(found, got)

    assert (not told) is is_right, told


@pytest.mark.parametrize("kind", ["plain", "uneven", "scaled"])
def test_a_precision_that_the_user_allows_has_the_same_leeway(torch: ModuleType, kind: str) -> None:
    """Attention in bfloat16 was right on a task's own draws and wrong on `uneven` ones."""
    from actors.evaluator.children import correctness
    from actors.evaluator.children.reference_round import ReferenceRound

    task = prepared_task(ATTENTION)
    inputs: list[torch_types.Tensor] = task.inputs(3, kind)  # type: ignore[arg-type,assignment]
    query, key, value = (each.bfloat16() for each in inputs)
    got = torch.nn.functional.scaled_dot_product_attention(query, key, value).float()
    found = ReferenceRound(list(inputs), kind)  # type: ignore[arg-type]
    found.call(task, 0)
    floor = correctness.PRECISIONS["bfloat16"]

    assert not reason(found, got, floor)
    assert reason(found, 0 * got, floor)
