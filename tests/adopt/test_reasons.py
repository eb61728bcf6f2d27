"""Why a model stays as it is: in one sentence, the most promising modules first."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
import torch
from quick_stages import looked_at, options, silent, take_quickly

from actors.adopt import task_making
from actors.adopt.look import Look
from actors.adopt.model_report import no_winner_line
from actors.adopt.stage_folder import StageFolder
from actors.adopt.take import take
from actors.adopt.taken_tasks import NotTaken, Take
from actors.adopt.task_runs import run_outcome

FILE = Path(__file__).parent / "models" / "planted.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StageFolder:
    return looked_at(FILE, tmp_path_factory.mktemp("stages"), 3)


def test_without_a_task_the_sentence_begins_with_the_module_with_most_to_win(
    folder: StageFolder,
) -> None:
    """Before: in the order in which they were refused, the smallest first."""
    groups = sorted(folder.read("look.json", Look, "look").groups, key=lambda each: each.ceiling)
    refused = [NotTaken(name=each.name, sites=each.sites, reason="it is odd") for each in groups]
    taken = Take(tasks=[], not_taken=refused, captured_bytes=0, is_cap_reached=False)
    folder.write("take.json", taken)
    said = no_winner_line(folder)
    largest = groups[-1]
    assert f"task. {largest.name} (at most {largest.ceiling:.2f}×): it is odd" in said


def test_a_run_that_could_not_go_on_says_why(folder: StageFolder) -> None:
    """The rule book's reason, and not "1 attempts, 0 correct"."""
    (task,) = take_quickly(folder, "fast.*").tasks
    run = folder.path / "runs" / task.name
    (run / "tasks").mkdir(parents=True)
    shutil.copy(folder.path / task.file, run / "tasks")
    notes = ["ended after 1 of 3 attempts: The rule book can't go on."]
    result = {"status": "finished", "attempts": 1, "correct": 0, "best": None, "notes": notes}
    (run / "result.json").write_bytes(msgspec.json.encode({"tasks": [result]}))
    assert notes[0] == run_outcome(folder, task)


def test_a_task_is_timed_alone_with_hooks_as_in_the_model(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks take as long as a small operation: with them on one side only, tasks were refused."""
    hooks: list[tuple[int, int]] = []
    own = task_making.call_us

    def call_us(calls: Sequence[Callable[[], object]], device: torch.device) -> float:
        for module in (call.func for call in calls):  # type: ignore[attr-defined]
            hooks.append((len(module._forward_pre_hooks), len(module._forward_hooks)))
        return own(calls, device)

    monkeypatch.setattr(task_making, "call_us", call_us)
    assert take_quickly(folder, "fast.*").tasks
    assert {(1, 1)} == set(hooks)


def test_a_module_whose_python_takes_the_time_becomes_a_task(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task's text is without it: in the model a call may take as long as the module alone."""
    monkeypatch.setattr(task_making.TaskMaker, "_alone_us", lambda *given, **named: 15.0)
    monkeypatch.setattr(task_making.TaskMaker, "_in_model_us", lambda *given: 23.0)
    monkeypatch.setattr(task_making, "call_us", lambda *given: 21.0)
    narrow = msgspec.structs.replace(options("fast.*"), max_gap=0.2)
    (task,) = take(folder, narrow, silent).tasks
    assert (15.0, 21.0, 23.0) == (
        task.proof.alone_us,
        task.proof.alone_cold_us,
        task.proof.in_model_us,
    )
    monkeypatch.setattr(task_making, "call_us", lambda *given: 16.0)
    (refused,) = take(folder, narrow, silent).not_taken
    assert "alone it takes 15 to 16 µs, in the model 23 µs" in refused.reason
