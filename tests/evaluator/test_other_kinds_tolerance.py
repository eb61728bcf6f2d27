"""On draws of other kinds than the task's own a candidate may be less exact, not otherwise."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

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
    from actors.evaluator.children.integer_losses import IntegerLosses
    from actors.evaluator.children.reference_round import OutputRules, ReferenceRound
    from actors.evaluator.children.task_module import TaskModule
    from actors.evaluator.ipc.orders import CallForm
    from actors.evaluator.ipc.referee_orders import CompareBytes

    task = TaskModule(TASK, "cpu")
    task.make(1)
    task.find_precision(task.inputs(2))
    (x,) = task.inputs(2, kind)  # type: ignore[arg-type]
    gemm = task.model.gemm
    got = task.model.norm(rounded(x, bits) @ rounded(gemm.weight, bits).T + gemm.bias).detach()
    found = ReferenceRound([x], kind)  # type: ignore[arg-type]
    found.call(task, 0)
    rules = OutputRules(CallForm(), (False,), 0.0, (), IntegerLosses())

    compared = found.compare_outputs([got], CompareBytes(draw=0, what="output"), rules)

    assert (not compared.reason) is is_right, compared


@pytest.mark.parametrize("kind", ["plain", "uneven", "scaled"])
def test_a_precision_that_the_user_allows_has_the_same_leeway(torch: ModuleType, kind: str) -> None:
    """Attention in bfloat16 was right on a task's own draws and wrong on `uneven` ones."""
    from actors.evaluator.children import correctness
    from actors.evaluator.children.integer_losses import IntegerLosses
    from actors.evaluator.children.reference_round import OutputRules, ReferenceRound
    from actors.evaluator.children.task_module import TaskModule
    from actors.evaluator.ipc.orders import CallForm
    from actors.evaluator.ipc.referee_orders import CompareBytes

    task = TaskModule(ATTENTION, "cpu")
    task.make(1)
    task.find_precision(task.inputs(2))
    inputs: list[torch_types.Tensor] = task.inputs(3, kind)  # type: ignore[arg-type,assignment]
    query, key, value = (each.bfloat16() for each in inputs)
    got = torch.nn.functional.scaled_dot_product_attention(query, key, value).float()
    found = ReferenceRound(list(inputs), kind)  # type: ignore[arg-type]
    found.call(task, 0)
    floor = correctness.PRECISIONS["bfloat16"]
    rules = OutputRules(CallForm(), (False,), floor, (), IntegerLosses())
    order = CompareBytes(draw=0, what="output")

    assert not found.compare_outputs([got], order, rules).reason
    assert found.compare_outputs([0 * got], order, rules).reason
