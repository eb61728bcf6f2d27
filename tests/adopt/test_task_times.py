"""The times of a task alone and in the model, on a machine that other programs use."""

from __future__ import annotations

import functools
import time
from pathlib import Path

import pytest
import torch

from actors.adopt.model.call_layouts import call_kind, layout_of
from actors.adopt.model.model_state import KeptState
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.take.captures import CaptureSet, CaptureWriter
from actors.adopt.take.taken_tasks import Options
from actors.adopt.take.task_making import ModelSteps, TaskMaker
from actors.adopt.tasks.task_proof import LEAST_CALLS, SERIES, calls_us


def test_slow_calls_are_timed_a_few_times_however_many_take_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside other programs a call may take a hundred times as long: the series still end."""
    monkeypatch.setattr("actors.adopt.tasks.task_proof.TIMED_S", 0.01)
    made: list[int] = []

    def slow(number: int) -> None:
        made.append(number)
        time.sleep(0.01)

    turns = [[functools.partial(slow, 100 * side + turn) for turn in range(64)] for side in (0, 1)]
    found = calls_us(turns, torch.device("cpu"))
    each_turn = range(SERIES * LEAST_CALLS)  # each has weights of its own, the sides in turn
    assert [100 * side + turn for turn in each_turn for side in (0, 1)] == made
    assert all(0.0 < us < 1e4 for us in found)  # a thread that sleeps does not work


def test_the_time_in_the_model_is_that_of_a_call_that_nothing_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few calls come in the model: where most are interrupted, the least says what they take."""
    monkeypatch.setattr("actors.adopt.tasks.task_proof.TIMED_S", 0.0)
    lengths = iter([40e-6, 40e-6, 10e-6, 40e-6])
    moments = (moment for begun in range(4) for moment in (float(begun), begun + next(lengths)))
    monkeypatch.setattr("actors.adopt.model.call_recorder.working_seconds", lambda: next(moments))
    model, value = torch.nn.Sequential(torch.nn.ReLU()).eval(), torch.ones(3)

    def run() -> None:
        with torch.no_grad():
            for _ in range(4):
                model(value)

    with torch.no_grad():
        kind = call_kind(model[0], (value,), {})
    steps = ModelSteps(
        model=model, run=run, count=4, device=torch.device("cpu"), state=KeptState(model),
        trains=False,
    )  # fmt: skip
    folder, options = StageFolder(tmp_path), Options()
    maker = TaskMaker(folder, options, steps, CaptureWriter(folder, options.cap), rounds=1)
    capture = CaptureSet(file="", site="0", kind=kind, output=layout_of(value), size=0, effect="")
    assert pytest.approx(10.0, rel=1e-3) == maker._in_model_us(capture, ["0"])
