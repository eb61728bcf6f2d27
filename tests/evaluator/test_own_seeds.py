"""Tasks that seed their own draws: calls have fresh inputs all the same."""

from __future__ import annotations

import random
from types import ModuleType

import pytest
from corpus.scene import is_credited

from actors.evaluator.judge import Judge
from protocol.values import Task, Verdict

TASK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(256, 256)

    def forward(self, x):
        return torch.tanh(self.lin(torch.tanh(self.lin(x))))

def get_inputs():
    torch.manual_seed(42)
    return [torch.randn(128, 256)]

def get_init_inputs():
    return []
"""
KEPT = """
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(256, 256)
        self.last = None

    def forward(self, x):
        if self.last is None or not torch.equal(self.last[0], x):
            self.last = x.clone(), torch.tanh(self.lin(torch.tanh(self.lin(x))))
        return self.last[1].clone()
"""


def test_a_task_that_seeds_itself_has_no_input_twice(patient_judge: Judge) -> None:
    """A candidate that keeps the output of its last input was 15 times as fast."""
    verdict = patient_judge.judge(Task(name="seeds_itself", source=TASK), KEPT)
    assert isinstance(verdict, Verdict)
    assert not is_credited(verdict), verdict


@pytest.mark.parametrize("seeded", ["torch.manual_seed", "torch.random.manual_seed", "generator"])
def test_own_seeds_are_mixed(torch: ModuleType, seeded: str) -> None:
    """Another seed of the judge gives another draw, and the same one the same draw."""
    from actors.evaluator.children.source_import import mixed_seeds

    def draw(seed: int) -> list[float]:
        with mixed_seeds(seed):
            if seeded == "generator":
                drawn = torch.rand(3, generator=torch.Generator().manual_seed(0))
            else:
                eval(seeded, {"torch": torch})(0)  # noqa: S307  # one of the names above
                drawn = torch.rand(3)
            random.seed(0, version=2)
            return [*drawn.tolist(), random.random()]

    assert draw(1) == draw(1)
    assert not set(draw(1)) & set(draw(2))
    torch.manual_seed(0)
    first = torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(first, torch.rand(3))
