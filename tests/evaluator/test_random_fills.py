"""First values of large modules: where they are drawn, and that all processes draw the same."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from actors.evaluator.children.source_import import seed_all
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors.random_fills import LARGE_FILL, LargeFillsOnCard, large_fills

WIDTH = 2048


class Mixed(nn.Module):
    """Large and small tensors, drawn in the ways that modules use, one with its own generator."""

    def __init__(self) -> None:
        super().__init__()
        self.large = nn.Linear(WIDTH, WIDTH)
        self.drawn = nn.Parameter(torch.randn(WIDTH, WIDTH))
        own = torch.Generator().manual_seed(5)
        self.own = nn.Parameter(torch.empty(WIDTH, WIDTH).normal_(0, 2, generator=own))
        self.narrow = nn.Parameter(nn.init.trunc_normal_(torch.empty(WIDTH, WIDTH)).half())
        self.unregistered = torch.rand(WIDTH, WIDTH + 1)
        self.indices = torch.arange(WIDTH)


def made(context: object) -> dict[str, torch.Tensor]:
    seed_all(3)
    with context:  # type: ignore[attr-defined]
        module = Mixed()
    return {**module.state_dict(), "unregistered": module.unregistered, "indices": module.indices}


def test_nothing_but_the_place_of_drawing_changes() -> None:
    """With the host itself as the place, every tensor has the bits that it has without it."""
    assert LARGE_FILL <= WIDTH * WIDTH
    plain, drawn = made(large_fills(on_card=False)), made(LargeFillsOnCard("cpu"))
    assert plain.keys() == drawn.keys()
    for name, value in plain.items():
        assert torch.equal(value, drawn[name]), name


def test_no_process_waits_for_torchs_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch would import it for such a mode: 1.4 s of every candidate with a large module."""
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    with LargeFillsOnCard("cpu"):
        nn.Linear(2, 2)
    assert "torch._dynamo" not in sys.modules


@pytest.mark.gpu
def test_processes_with_one_seed_construct_alike_on_the_host() -> None:
    """Drawn on a card: equal after the same seed, on the host as before, of the same spread."""
    plain, one, other = (made(large_fills(on_card=way)) for way in (False, True, True))
    for name, value in one.items():
        assert value.device.type == "cpu", name
        assert torch.equal(value, other[name]), name
        spread = value.float().std(), plain[name].float().std()
        assert torch.isclose(*spread, rtol=0.01), name
    assert torch.equal(plain["own"], one["own"])
    assert not torch.equal(plain["drawn"], one["drawn"])


LARGE_TASK = f"""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))
        self.kept = torch.randn(width)

    def forward(self, x):
        return self.layers(x) + self.kept.to(x.device)


def get_inputs():
    return [torch.rand(4, {4 * WIDTH})]


def get_init_inputs():
    return [{4 * WIDTH}]
"""


@pytest.mark.gpu
def test_a_large_task_s_plain_tensors_stay_where_the_module_makes_them() -> None:
    """What a module leaves on the host is there, as a user's module has it."""
    task = TaskModule(LARGE_TASK, "cuda")
    task.make(1)
    assert task.fills_on_card
    assert task.model.kept.device.type == "cpu"
    task.perturb(task.inputs(2), 1)
    moved = [not torch.equal(task.state[name], value) for name, value in task.first.items()]
    assert all(moved)
