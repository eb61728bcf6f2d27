"""Tasks that seed their own draws: calls have fresh inputs all the same."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

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


SEEDED = {
    "torch": "torch.manual_seed(0); drawn = torch.rand(3)",
    "torch.random": "torch.random.manual_seed(0); drawn = torch.rand(3)",
    "generator": "drawn = torch.rand(3, generator=torch.Generator().manual_seed(0))",
    "random": "random.seed(0, version=2); drawn = [random.random()]",
    "named": "manual_seed(0); drawn = torch.rand(3)",
    "numpy": "numpy.random.seed(0); drawn = numpy.random.rand(3)",
    "numpy, unseeded": "drawn = numpy.random.rand(3)",
    "rng": "drawn = numpy.random.default_rng(0).random(3)",
    "rng by its name": "drawn = default_rng(0).random(3)",
    "rng, unseeded": "drawn = numpy.random.default_rng().random(3)",
    "rng of several": "drawn = numpy.random.default_rng([1, 2]).random(3)",
    "state": "drawn = numpy.random.RandomState(0).rand(3)",
}


@pytest.mark.parametrize("name", SEEDED)
def test_own_seeds_are_mixed(torch: ModuleType, name: str) -> None:
    """Another seed of the judge gives another draw, and the same one the same draw."""
    from actors.evaluator.children.tensors.mixed_seeds import mixed_seeds

    names: dict[str, Any] = {"torch": torch, "random": random, "manual_seed": torch.manual_seed}
    if "numpy" in SEEDED[name] or "rng" in SEEDED[name]:
        names["numpy"] = pytest.importorskip("numpy")
        names["default_rng"] = names["numpy"].random.default_rng

    def draw(seed: int) -> list[float]:
        torch.manual_seed(seed)
        with mixed_seeds(seed, names):
            exec(SEEDED[name], names)  # noqa: S102  # one of the lines above
        return [float(each) for each in names["drawn"]]

    before = dict(names)
    assert draw(1) == draw(1)
    assert not set(draw(1)) & set(draw(2))
    assert all(names[each] is value for each, value in before.items())
    torch.manual_seed(0)
    first = torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(first, torch.rand(3))


def test_seeds_of_one_draw_stay_apart(torch: ModuleType) -> None:
    """Two inputs that are seeded differently are different, by name or not."""
    from actors.evaluator.children.tensors.mixed_seeds import mixed_seeds

    with mixed_seeds(5):
        drawn = []
        for number in range(2):
            torch.manual_seed(seed=number)
            drawn.append(torch.rand(3))
    assert not torch.equal(*drawn)


def test_numpy_is_what_it_was(torch: ModuleType) -> None:
    """Libraries ask what kind of generator they are given, and pass on their own."""
    random_of = pytest.importorskip("numpy").random
    from actors.evaluator.children.tensors.mixed_seeds import mixed_seeds

    own, state, seed = random_of.default_rng(0), random_of.RandomState, random_of.seed
    with mixed_seeds(torch.initial_seed()):
        assert random_of.default_rng(own) is own
        assert isinstance(random_of.mtrand._rand, random_of.RandomState)
        assert isinstance(random_of.RandomState(0), random_of.RandomState)
    assert random_of.RandomState is state
    assert random_of.seed is seed
    seed(0)
    first = random_of.rand()
    seed(0)
    assert first == random_of.rand()
