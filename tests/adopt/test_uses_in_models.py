"""Winners in models that use their modules in unusual ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from planted_winners import winner_file
from quick_stages import looked_at, silent, take_quickly

from actors.adopt.fit.fit import fit, load_package
from actors.adopt.model.call_layouts import layout_of
from actors.adopt.model.model_file import ModelFile
from actors.adopt.tasks.tensor_draws import weight_text

CHECKPOINT = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(32, 32)

    def forward(self, x):
        return nn.functional.silu(self.inner(x)) * torch.tanh(x)


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), Gate(), nn.Linear(32, 4))


def step(model, batch):
    model.zero_grad()
    hidden = checkpoint(model[1], model[0](batch[0][0]), use_reentrant=False)
    loss = model[2](hidden).square().mean()
    loss.backward()
    return loss


def batches():
    for _ in range(3):
        yield (torch.randn(8, 16),), {}
"""

CHANNELS_LAST = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(4, 16), nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x):
        return self.conv(nn.functional.silu(self.norm(x)))


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), Block(), nn.Conv2d(16, 2, 1)).eval()
    return model.to(memory_format=torch.channels_last)


def batches():
    for _ in range(3):
        yield (torch.randn(2, 3, 12, 12).to(memory_format=torch.channels_last),), {}
"""


def fitted(tmp_path: Path, text: str) -> tuple[ModelFile, Any, str]:
    """Return a model's file, the package of a winner that is a copy of its module 1, its task."""
    (tmp_path / "model.py").write_text(text)
    folder = looked_at(tmp_path / "model.py", tmp_path / "out", 3)
    (task,) = take_quickly(folder, "1").tasks
    source = (folder.path / task.file).read_text()
    candidate = source.split("def get_inputs")[0].replace("class Model(", "class ModelNew(")
    gradients = tuple(range(len(task.inputs))) if task.gradients else None
    folder.write_text("winner.py", winner_file(source, candidate, gradients))
    fit(folder, [], {task.name: folder.path / "winner.py"}, silent)
    return ModelFile(tmp_path / "model.py"), load_package(folder), source


def test_a_checkpoint_ends_a_kernel_s_forward_early(tmp_path: Path) -> None:
    """It does so with an exception, which is no failure of the kernel; before: the model raised."""
    file, package, _ = fitted(tmp_path, CHECKPOINT)
    model, batch = file.build(), file.batches(1)[0]
    wanted = file.step(model, batch)
    gradient = model[0].weight.grad.clone()
    package.fit(model)
    torch.testing.assert_close(file.step(model, batch), wanted)
    torch.testing.assert_close(model[0].weight.grad, gradient)
    assert {"kernel": 1, "original": 0} == {
        key: package.report(model)["1"][key] for key in ("kernel", "original")
    }


def test_a_kernel_runs_with_weights_in_channels_last(tmp_path: Path) -> None:
    """A task draws them in these strides, so that its winner is judged with them.

    Before: "the parameter has strides …, the kernels take contiguous", for every call.
    """
    file, package, source = fitted(tmp_path, CHANNELS_LAST)
    assert ".permute(0, 3, 1, 2)" in source.split("def forward")[0]
    model, (args, _) = file.build(), file.batches(1)[0]
    with torch.no_grad():
        wanted = model(*args)
        package.fit(model)
        torch.testing.assert_close(model(*args), wanted)
    report = package.report(model)["1"]
    assert (1, {}) == (report["kernel"], report["reasons"])
    package.unfit(model)
    assert "forward" not in vars(model[1])


@pytest.mark.parametrize("shape", [(16, 4, 3, 3), (8, 4, 1, 1), (5, 7)])
def test_a_weight_s_text_has_its_strides(shape: tuple[int, ...]) -> None:
    """Also those of weights that are all equal, which become different ones."""
    for weight in (torch.randn(shape), torch.ones(shape)):
        if len(shape) == 4:
            weight = weight.to(memory_format=torch.channels_last)
        made = eval(weight_text(weight), {"torch": torch})  # noqa: S307  # our own text
        assert layout_of(weight) == layout_of(made)
