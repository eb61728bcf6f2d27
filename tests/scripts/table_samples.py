"""Tiny checkouts of KernelBench, and hand-written rows."""

from __future__ import annotations

from pathlib import Path

from scripts.tables.result_rows import ProblemRow, ProblemState, RunRows

PROBLEM = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.relu(x) * {factor} + 1.0


def get_inputs():
    return [torch.rand(64, 256)]


def get_init_inputs():
    return []
"""
RAISES = PROBLEM.replace(
    "return torch.relu(x) * {factor} + 1.0", "raise ValueError('no such thing')"
)


def checkout(folder: Path, *files: str, source: str = PROBLEM) -> Path:
    """Make `KernelBench/levelN/…` files like "level1/1_Relu.py"; return the checkout."""
    for number, file in enumerate(files, start=2):
        path = folder / "KernelBench" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source.replace("{factor}", str(number)), encoding="utf-8")
    return folder


def solved(number: int, eager: float, compiled: float | None = None, **more: object) -> ProblemRow:
    """Return the row of a solved problem with these speed-ups over the baselines."""
    times = {"eager_us": 100.0, "best_us": 100.0 / eager, "attempts": 10, "compiled": 8}
    row = {
        "state": ProblemState.SOLVED,
        "speed_eager": eager,
        "is_winner": eager > 1,
        "correct": 5,
        "usd": 0.5,
        "minutes": 2.0,
    }
    if compiled is not None:
        row |= {"compile_us": 100.0 / eager * compiled, "speed_compile": compiled}
    return make(number, **{**times, **row, **more})


def unsolved(number: int, **more: object) -> ProblemRow:
    """Return the row of a problem whose budget ended without a correct candidate."""
    row = {
        "state": ProblemState.UNSOLVED,
        "eager_us": 100.0,
        "attempts": 10,
        "compiled": 4,
        "usd": 0.5,
    }
    return make(number, **{**row, **more})


def unmeasured(number: int) -> ProblemRow:
    """Return the row of a problem that this machine can't measure."""
    return make(number, state=ProblemState.UNMEASURED, reason="too large for this machine", usd=0.0)


def make(number: int, **figures: object) -> ProblemRow:
    name = f"P{number}"
    task = f"level1_{number}_{name}"
    return ProblemRow(level=1, problem=number, name=name, task=task, **figures)  # type: ignore[arg-type]


def rows_of(*rows: ProblemRow, strategy: str = "stark", **more: object) -> RunRows:
    facts = {"policy": "epsilon-greedy", "model": "recipes", "budget": 10, "seed": 0}
    facts |= {"device": "cpu", "hardware": "Test CPU"}
    return RunRows(strategy=strategy, rows=rows, **{**facts, **more})  # type: ignore[arg-type]
