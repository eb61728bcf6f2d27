"""What was recorded stays in `captures/`: no other file has a recorded value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from planted_winners import candidate, winner_file
from quick_stages import looked_at, silent, take_quickly

from actors.adopt.fit.fit import fit
from actors.adopt.model_report import report_text
from actors.adopt.stage.stage_folder import StageFolder

# Values of this size are in no file by chance: shares and times are smaller.
SCALE, LEAST = 1e13, 1e9
MODEL = f"""\
import torch
class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, 64))
    def forward(self, x):
        return x * self.weight
def build():
    return torch.nn.Sequential(Scale(), Scale(), Scale()).eval()
def batches():
    for rows in (64, 64, 64, 16):
        yield (torch.randn(rows, 64) * {SCALE},), {{}}
"""
NUMBER = re.compile(rb"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")
RANGE_DIGITS = 3  # of a range, that a task has in place of values


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StageFolder:
    """Return a folder with a task, its winner, the package and the report."""
    path = tmp_path_factory.mktemp("recorded")
    (path / "model.py").write_text(MODEL)
    made = looked_at(path / "model.py", path / "out", 4)
    (task,) = take_quickly(made, "*").tasks
    source = (made.path / task.file).read_text()
    made.write_text("runs/0/best.py", winner_file(source, candidate("x * self.weight")))
    fit(made, [], {}, silent)
    made.write_text("report.md", report_text(made))
    return made


@pytest.fixture(scope="module")
def values(folder: StageFolder) -> torch.Tensor:
    """Return the recorded inputs and outputs as float32[N], sorted by size."""
    calls = [torch.load(file, weights_only=True) for file in recorded_files(folder)]
    found = [each for call in calls for each in (*call["args"], call["output"])]
    assert found
    return torch.cat([each.flatten() for each in found]).abs().sort().values


def recorded_files(folder: StageFolder) -> list[Path]:
    return sorted((folder.path / "captures").rglob("*.pt"))


def other_texts(folder: StageFolder) -> dict[str, bytes]:
    """Return name -> content of all files but recorded calls."""
    recorded = recorded_files(folder)
    return {
        str(file.relative_to(folder.path)): file.read_bytes()
        for file in folder.path.rglob("*")
        if file.is_file() and file not in recorded and file.suffix != ".pyc"
    }


def precise_numbers(text: bytes) -> Iterator[float]:
    """Yield the numbers of recorded values' size that have more digits than a range."""
    for word in NUMBER.findall(text):
        digits = word.partition(b"e")[0].replace(b".", b"").strip(b"0")
        if len(digits) > RANGE_DIGITS and float(word) > LEAST:
            yield float(word)


def is_recorded(values: torch.Tensor, number: float) -> bool:
    """Whether a number is one of the values, give or take its fifth digit."""
    return bool(((values - number).abs() < 1e-4 * number).any())


def test_no_text_has_a_recorded_value(folder: StageFolder, values: torch.Tensor) -> None:
    """Tasks, cases, records, the report and the package have shapes and ranges."""
    others = other_texts(folder)
    assert {"look.json", "take.json", "fit.json", "report.md"} < set(others)
    found = [
        (name, number)
        for name, text in others.items()
        for number in precise_numbers(text)
        if is_recorded(values, number)
    ]
    assert [] == found


def test_no_file_has_the_bytes_of_recorded_values(folder: StageFolder) -> None:
    """Two neighbours of a recorded tensor are in no other file as they are in memory."""
    pairs = set()
    for file in recorded_files(folder):
        (given,) = torch.load(file, weights_only=True)["args"]
        pairs |= {bytes(pair) for pair in given.view(torch.uint8).reshape(-1, 8).tolist()}
    others = b"\0".join(other_texts(folder).values())
    assert len(pairs) > 1000
    assert not [pair for pair in pairs if pair in others]


def test_a_recorded_value_in_a_text_would_be_found(values: torch.Tensor) -> None:
    """As Python or JSON writes it, or rounded to five digits; a range's three digits are none."""
    value = float(values[len(values) // 2])
    for written in (f"{value}", f"x: {value:.5g},", f"[{value:.0f}]", f"({value:.8e})"):
        assert [True] == [is_recorded(values, n) for n in precise_numbers(written.encode())], (
            written
        )
    assert [] == list(precise_numbers(f"clamp(-{SCALE:.3g}, 4.12e+13)".encode()))
