"""A cache that is written where a number says is state, whatever of it two calls show."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

CACHE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {cache}
        self.pos = 0
        self.last = None

    def forward(self, x):
        self.cache[self.pos % 16] = x
        self.pos += 1
        {last}
        return self.cache[: min(self.pos, 16)].mean(0)

def get_inputs():
    return [torch.randn(64)]

def get_init_inputs():
    return []
"""
BUFFER = 'self.register_buffer("cache", torch.zeros(16, 64))'
ATTRIBUTE = "self.cache = torch.zeros(16, 64)"


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task's file is written where the process works."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("cache", [BUFFER, ATTRIBUTE])
def test_a_cache_and_the_number_of_its_rows_are_state(torch: ModuleType, cache: str) -> None:
    """Without the cache outputs seemed to follow from the number: its earlier rows stayed.

    A candidate's had other rows, and the module's own text was `wrong` in timed calls.
    """
    from actors.evaluator.children import module_updates, task_randomness
    from actors.evaluator.children.task_module import TaskModule

    task = TaskModule(CACHE.format(cache=cache, last="self.last = x.clone()"), "cpu")
    task.make(1)
    is_steady = task_randomness.is_steady(task, task.inputs(2), 1)
    task.eager_outputs(task.inputs(2), 1)
    updated, (is_repeated, follows_state) = module_updates.find_updates(
        task, task.inputs(4), 1, 0.0, is_steady=is_steady
    )
    assert sorted(updated.keys) == ["cache", "pos"]  # not the last input, which decides nothing
    assert follows_state
    assert not is_repeated
    assert len(updated.items) == 2
    assert set(task.state_floors) == {"cache", "pos"}
