"""A task, candidates for it, and drop-in files made of both, imported in this process."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from actors.evaluator.children.tensors.tensor_bytes import layout_of
from actors.release.composition import drop_in_source
from protocol.release import Judged, Limit, Release

TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, features, slope=0.5):
        super().__init__()
        self.lin = nn.Linear(features, features)
        self.drop = nn.Dropout(0.5)
        self.slope = slope
        self.eval()

    def forward(self, x, y):
        return self.drop(torch.relu(self.lin(x)) * self.slope) + y

def get_inputs():
    return [torch.randn(4, 16), torch.randn(4, 16)]

def get_init_inputs():
    return [16]
"""

# Right without gradients and wrong with them, like kernels that work on pointers.
CANDIDATE = """
import torch
from torch import nn
{before}
class ModelNew(nn.Module):
    def __init__(self, features, slope=0.5):
        super().__init__()
        self.lin = nn.Linear(features, features)
        self.slope = slope
        {construct}

    def forward(self, x, y):
        x, y, weight, bias = (t.detach() for t in (x, y, self.lin.weight, self.lin.bias))
        {body}
        return torch.relu(x @ weight.t() + bias) * self.slope + y
"""
_numbers = itertools.count()


def candidate(before: str = "", construct: str = "pass", body: str = "pass") -> str:
    """Return a candidate's source with these lines in it."""
    return CANDIDATE.format(before=before, construct=construct, body=body)


def imported(source: str, folder: Path) -> ModuleType:
    """Import a module's source from a file of its own."""
    name = f"drop_in_sample_{next(_numbers)}"
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8", newline="")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def judged(task: ModuleType) -> Judged:
    """Return the layouts that a judge records of a task on a CPU."""
    init, inputs = task.get_init_inputs(), task.get_inputs()
    model = task.Model(*init)
    return Judged(
        device="cpu",
        init=layout_of(init),
        inputs=layout_of(inputs),
        outputs=layout_of(model(*inputs)),
        state=layout_of(dict(model.state_dict())),
    )


def drop_in(folder: Path, source: str, task: str = TASK, limits: tuple[Limit, ...] = ()) -> Any:
    """Return the imported drop-in file of a candidate."""
    release = Release(judged=judged(imported(task, folder)), limits=limits)
    return imported(drop_in_source(task, source, release), folder)


def pair(file: Any) -> tuple[Any, Any, list[torch.Tensor]]:
    """Return a plain module, a winner with the same parameters, and inputs."""
    plain = file.Model(*file.get_init_inputs())
    winner = file.ModelNew(*file.get_init_inputs())
    winner.load_state_dict(plain.state_dict())
    return plain, winner, file.get_inputs()
