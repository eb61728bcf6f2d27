"""Why a model stays as it is: in one sentence, the most promising modules first."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
import torch
from quick_stages import looked_at, options, silent, take_quickly

from actors.adopt.look.look import Look
from actors.adopt.model_report import no_winner_line
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.take import task_making
from actors.adopt.take.take import take
from actors.adopt.take.taken_tasks import NotTaken, Take
from actors.adopt.task_runs import run_outcome
from actors.adopt.tasks.task_proof import CallTimes

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
    about = "each call is forward and backward, timed together"  # a note about the task
    notes = [about, "ended after 1 of 3 attempts: The rule book can't go on."]
    result = {"status": "finished", "attempts": 1, "correct": 0, "best": None, "notes": notes}
    (run / "result.json").write_bytes(msgspec.json.encode({"tasks": [result]}))
    assert notes[1].removesuffix(".") == run_outcome(folder, task)  # in the middle of a sentence


def test_a_task_is_timed_alone_with_hooks_as_in_the_model(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks take as long as a small operation: with them on one side only, tasks were refused."""
    hooks: list[tuple[int, int]] = []
    own = task_making.calls_us

    def calls_us(
        sides: Sequence[Sequence[Callable[[], object]]], device: torch.device
    ) -> list[float]:
        for module in (call.func for calls in sides for call in calls):  # type: ignore[attr-defined]
            hooks.append((len(module._forward_pre_hooks), len(module._forward_hooks)))
        return own(sides, device)

    monkeypatch.setattr(task_making, "calls_us", calls_us)
    assert take_quickly(folder, "fast.*").tasks
    assert {(1, 1)} == set(hooks)


def timed(
    monkeypatch: pytest.MonkeyPatch, *, task_us: float, module_us: float, in_model_us: float
) -> None:
    """Give a call these times."""
    maker = task_making.TaskMaker
    monkeypatch.setattr(maker, "_alone_us", lambda *given: (task_us, module_us))
    monkeypatch.setattr(maker, "_cold_us", lambda *given: task_us)
    monkeypatch.setattr(maker, "_in_model_us", lambda *given: in_model_us)


def test_a_task_that_is_slower_than_its_module_is_refused(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that is faster than such a task would bring the model nothing."""
    narrow = msgspec.structs.replace(options("fast.*"), max_gap=0.2)
    timed(monkeypatch, task_us=24.0, module_us=21.0, in_model_us=10.0)
    (task,) = take(folder, narrow, silent).tasks  # the machine was slower when it was alone
    assert CallTimes(24.0, 24.0, 21.0, 10.0) == task.proof.times
    timed(monkeypatch, task_us=26.0, module_us=21.0, in_model_us=26.0)
    (refused,) = take(folder, narrow, silent).not_taken
    assert "its task takes 26 µs alone, the module 21 µs" in refused.reason


def test_of_a_call_that_is_slower_in_the_model_only_its_own_part_can_be_won(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: refused. Cold caches around a call are the model's, and its share is without them."""
    wanted = msgspec.structs.replace(options("fast.*"), max_gap=0.2)
    shares = []
    for in_model_us in (20.0, 40.0):
        timed(monkeypatch, task_us=20.0, module_us=20.0, in_model_us=in_model_us)
        (task,) = take(folder, wanted, silent).tasks
        shares.append((task.share, task.free_share))
    assert [each / 2 for each in shares[0]] == list(shares[1])
    chosen = msgspec.structs.replace(wanted, patterns=(), min_share=0.01, top=100)
    timed(monkeypatch, task_us=20.0, module_us=20.0, in_model_us=2e7)
    taken = take(folder, chosen, silent)
    assert not taken.tasks
    assert any("0% of it is its own: its share is 0.0%" in e.reason for e in taken.not_taken)
