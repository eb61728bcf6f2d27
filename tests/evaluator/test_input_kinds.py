"""Draws of other kinds are used where the task bears them: not where equal elements decide."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {outputs}

def get_inputs():
    return [torch.randn(32, 300, dtype=torch.{dtype})]

def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task's file is written where the process works."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("outputs", "is_used"),
    [
        ("x.sort(dim=1).indices", False),
        ("x.kthvalue(150, dim=1)", False),  # values and indices
        # It has no float64 version: quantiles are asked for in float32.
        ("(x.quantile(torch.tensor([0.5], dtype=torch.{dtype}), 1), x.argsort(1))", False),
        ("x.sort(dim=1).values", True),
        ("x > 0", True),  # zeros are compared with a threshold, not with each other
        ("torch.bucketize(x, torch.linspace(-2, 2, 17, dtype=x.dtype))", True),
    ],
)
def test_a_kind_whose_equal_elements_decide_integers_is_not_used(
    torch: ModuleType, outputs: str, dtype: str, *, is_used: bool
) -> None:
    """In which order zeros are sorted is not specified: an honest kernel was `wrong` there."""
    from actors.evaluator.children import input_kinds
    from actors.evaluator.children.integer_losses import find_losses
    from actors.evaluator.children.task_module import TaskModule
    from actors.evaluator.ipc.referee_orders import TryInputKind

    outputs = outputs.format(dtype=dtype)
    task = TaskModule(TASK.format(outputs=outputs, dtype=dtype), "cpu")
    task.make(1)
    task.find_precision(task.inputs(2))
    find_losses(task, task.eager_outputs(task.inputs(2), 1), 1)
    assert input_kinds.accepts(task, TryInputKind(kind="sparse", seed=3)) is is_used
    assert input_kinds.accepts(task, TryInputKind(kind="scaled", seed=3))
