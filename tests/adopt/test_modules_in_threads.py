"""Models that call their modules in several threads: times and recorded calls stay apart."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from actors.adopt.look.look import look
from actors.adopt.model.call_layouts import call_kind
from actors.adopt.model.call_recorder import recorded_calls
from actors.adopt.model.model_file import ModelFile
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.take.captures import CaptureWriter, capturing, load_capture

MODEL = """\
from concurrent.futures import ThreadPoolExecutor
import torch


class Wave(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) * torch.sigmoid(x)


class Parallel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.waves = torch.nn.ModuleList(Wave() for _ in range(3))
        self.head = torch.nn.Linear(64, 8)

    def forward(self, x):
        with ThreadPoolExecutor(3) as pool:
            parts = list(pool.map(lambda wave: wave(x), self.waves))
        return self.head(torch.cat(parts))


def build():
    return Parallel().eval()


def batches():
    for _ in range(3):
        yield (torch.randn(2048, 64),), {}
"""


class Doubled(torch.nn.Module):
    """A module whose call is at work while another one's is."""

    def __init__(self, meeting: threading.Barrier) -> None:
        super().__init__()
        self.meeting = meeting

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Begin and end in turn with the other call."""
        self.meeting.wait(30)
        return x * 2


def test_the_time_in_other_threads_is_the_modules_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, `look` saw the main thread only and said that nothing was worth a task."""
    monkeypatch.setattr("actors.adopt.look.look.STEP_S", 0.05)
    model = tmp_path / "model.py"
    model.write_text(MODEL)
    found = look(ModelFile(model), StageFolder(tmp_path / "out"), 8, ["eager"], lambda line: None)
    waves = {group.name: group for group in found.groups}["waves"]
    assert (3, 3) == (len(waves.sites), waves.calls)
    assert waves.share > 0.3


def test_calls_at_the_same_time_are_recorded_apart(tmp_path: Path) -> None:
    """Before, a call was stored with the result of another one that ended first."""
    meeting = threading.Barrier(2)
    model = torch.nn.ModuleList(Doubled(meeting) for _ in range(2))
    given = [torch.full((4,), 1.0), torch.full((5,), 3.0)]
    kinds = {call_kind(model[0], (each,), {}): 1 for each in given}
    folder = StageFolder(tmp_path)
    writer, cpu = CaptureWriter(folder, 1 << 20), torch.device("cpu")
    groups = {"doubled": (("0", "1"), kinds)}
    with (
        capturing(model, groups, writer) as sets,
        recorded_calls(model, {"doubled": ("0", "1")}, cpu) as calls,
        ThreadPoolExecutor(2) as pool,
    ):
        list(pool.map(lambda one: one[0](one[1]), zip(model, given, strict=True)))
    assert 2 == len({each.file for each in sets["doubled"]})
    for each in sets["doubled"]:
        call = load_capture(folder.path, each, cpu)
        assert torch.equal(call["args"][0] * 2, call["output"])
    assert {32: 1, 40: 1} == {each.call_bytes: each.calls for each in calls["doubled"].kinds}
