"""What eager loses of integers: some of a million elements are rounded to another side."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

QUANTISED = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        scale = x.abs().amax(-1, keepdim=True) / 127
        return (x / scale).round().to(torch.int8), scale

def get_inputs():
    return [torch.randn({rows}, 512)]

def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task's file is written where the process works."""
    monkeypatch.chdir(tmp_path)


def test_what_eager_loses_of_integers_is_counted_in_some_draws(
    torch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One draw in three of 262,144 elements shows nothing, and then one element was `wrong`."""
    from actors.evaluator.children import integer_losses
    from actors.evaluator.children.correctness import compare_integers
    from actors.evaluator.children.integer_losses import find_losses
    from actors.evaluator.children.task_module import TaskModule

    monkeypatch.setattr(integer_losses, "TRIED_S", 60.0)  # a busy machine makes as many draws
    task = TaskModule(QUANTISED.format(rows=512), "cpu")
    task.make(1)
    task.find_precision(task.inputs(2))
    losses = find_losses(task, task.eager_outputs(task.inputs(2), 1), 1)
    share, furthest = losses.of(0)
    assert 0 < share < 1e-3
    assert furthest == 1
    assert losses.of(1) == (0.0, 0.0)  # no integers
    eager = torch.zeros(512, 512, dtype=torch.int8)
    other = eager.clone()
    other[0, 0] = 1
    assert not compare_integers(other, eager, eager, "output", lost=losses.of(0)).reason
    assert compare_integers(other, eager, eager, "output").reason


def test_integers_without_a_float64_version_are_exact(torch: ModuleType) -> None:
    """Nothing is drawn for them, and nothing is excused."""
    from actors.evaluator.children.integer_losses import find_losses
    from actors.evaluator.children.task_module import TaskModule

    task = TaskModule(QUANTISED.format(rows=2), "cpu")
    task.make(1)
    losses = find_losses(task, task.eager_outputs(task.inputs(2), 1), 1)
    assert not losses.has_any
    assert losses.of(0) == (0.0, 0.0)
