"""Calls under autocast: the casts are a part of the task, and of the kernel that is fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from planted_winners import bare_winner, winner_file
from quick_stages import looked_at, silent, take_quickly

from actors.adopt.check.accuracy import Truth
from actors.adopt.fit.fit import fit, load_package
from actors.adopt.model.model_file import ModelFile
from actors.adopt.model.model_state import KeptState

MODEL = """\
import torch


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 64 * 64).reshape(64, 64))

    def forward(self, x):
        y = torch.nn.functional.linear(x, self.weight)
        return torch.softmax(y, -1) * torch.tanh(x)


def build():
    return torch.nn.Sequential(Gate()).{mode}()


def batches():
    for _ in range(3):
        yield (torch.linspace(-3, 3, 8 * 64).reshape(8, 64),), {{}}
"""
CALLED = """

def step(model, batch):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        return model(*batch[0])
"""
TRAINED = """

def step(model, batch):
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(*batch[0]).float().square().mean()
    loss.backward()
    return loss
"""
KERNEL = """\
assert not torch.is_autocast_enabled("cpu")
        y = (x.bfloat16() @ self.weight.bfloat16().t()).float()
        return torch.softmax(y, -1) * torch.tanh(x)"""
INPUT = torch.linspace(-2, 3, 8 * 64).reshape(8, 64)


def made_of(folder: Path, text: str) -> tuple[Any, Any, str]:
    """Return the stage folder, the task of the one module, and the task's source."""
    (folder / "gate.py").write_text(text)
    made = looked_at(folder / "gate.py", folder / "out", 3)
    (task,) = take_quickly(made, "0").tasks
    return made, task, (made.path / task.file).read_text()


def test_a_call_under_autocast_is_a_task_with_its_casts(tmp_path: Path) -> None:
    """Before: not taken. The kernel runs under that autocast alone, and sees none itself."""
    made, task, source = made_of(tmp_path, MODEL.format(mode="eval") + CALLED)
    assert "bfloat16" in source
    assert task.proof.is_equal, task.proof
    assert "autocast = true" in (made.path / task.file).with_name("cases.toml").read_text()
    kernel = KERNEL.replace("self.weight", f"self.{next(iter(task.state))}")
    made.write_text("winner.py", bare_winner(source, kernel, task))
    fit(made, [], {task.name: made.path / "winner.py"}, silent)
    package, file = load_package(made), ModelFile(tmp_path / "gate.py")
    model, plain = file.build(), file.build()
    package.fit(model)
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            found, expected = model(INPUT), plain(INPUT)
            assert torch.is_autocast_enabled("cpu")
        assert found.dtype is expected.dtype
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)
        assert 1 == package.report(model)["0"]["kernel"]
        with torch.autocast("cpu", torch.float16):
            assert torch.equal(model(INPUT), plain(INPUT))
        assert torch.equal(model(INPUT), plain(INPUT))
    counts = package.report(model)["0"]
    assert (1, 2) == (counts["kernel"], counts["original"])
    reasons = " / ".join(counts["reasons"])
    assert "autocast is to torch.float16" in reasons
    assert "autocast is off" in reasons


CONVOLUTIONS = """\
import torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.conv = torch.nn.GroupNorm(2, 8), torch.nn.Conv1d(8, 8, 3, padding=1)

    def forward(self, x):
        y = self.conv(torch.nn.functional.silu(self.norm(x)))
        return torch.tanh(y).reshape(-1, 8 * x.shape[2])


def build():
    return torch.nn.Sequential(torch.nn.Conv1d(4, 8, 1), Block()).eval()


def batches():
    for size in (32, 32, 48):
        yield (torch.linspace(-3, 3, 2 * 4 * size).reshape(2, 4, size),), {}
"""


def test_a_module_behind_a_convolution_is_a_task_under_autocast(tmp_path: Path) -> None:
    """It is called with bfloat16 and has float32 weights; its sizes vary.

    Before: "torch.export can't follow its forward".
    """
    (tmp_path / "block.py").write_text(CONVOLUTIONS + CALLED)
    made = looked_at(tmp_path / "block.py", tmp_path / "out", 3)
    taken = take_quickly(made, "1")
    assert ["Block"] == [task.class_name for task in taken.tasks], taken.not_taken
    (task,) = taken.tasks
    assert task.proof.is_equal
    source = (made.path / task.file).read_text()
    assert "torch.bfloat16" in source
    assert ".shape[2]" in source
    assert (
        "shapes"
        in (made.path / task.file).with_name("cases.toml").read_text().split("[[case]]")[-1]
    )


@pytest.mark.filterwarnings("ignore")
def test_a_training_step_under_autocast_has_a_winner_with_backward(tmp_path: Path) -> None:
    """The gradients of the fitted step are the original's; a compiled one holds the original."""
    made, task, source = made_of(tmp_path, MODEL.format(mode="train") + TRAINED)
    assert task.gradients
    candidate = source.replace("class Model", "class ModelNew")
    made.write_text("winner.py", winner_file(source, candidate, gradients=()))
    fit(made, [], {task.name: made.path / "winner.py"}, silent)
    package, file = load_package(made), ModelFile(tmp_path / "gate.py")
    model, plain = file.build(), file.build()
    package.fit(model)
    for each in (model, plain):
        with torch.autocast("cpu", torch.bfloat16):
            loss = each(INPUT).float().square().mean()
        loss.backward()
    ours, theirs = (next(each.parameters()).grad for each in (model, plain))
    torch.testing.assert_close(ours, theirs)
    assert 1 == package.report(model)["0"]["kernel"]
    torch._dynamo.reset()
    compiled: Any = torch.compile(model, backend="eager")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(compiled(INPUT), plain(INPUT))
    torch._dynamo.reset()


DEEP = """\
import torch


def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8))


def batches():
    for _ in range(3):
        yield (torch.randn(4, 8),), {}


def step(model, batch):
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(*batch[0]).float().square().mean()
    loss.backward()
    return loss
"""


def test_a_training_step_under_autocast_has_a_truth(tmp_path: Path) -> None:
    """Before: gradients come in another order in float64, and bfloat16's rounding was wrong."""
    (tmp_path / "deep.py").write_text(DEEP)
    file = ModelFile(tmp_path / "deep.py")
    model = file.build()
    batches = file.batches(3)
    state = KeptState(model, batches)
    state.keep()
    truth = Truth(file, model, batches, state)
    assert truth.problem == ""
    assert truth.accuracy(truth.results()).against == "float64"
