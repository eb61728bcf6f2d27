"""`scripts.tables.confirm_results`: published winners, judged again by an ordinary run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from supervisor_sample import WINNER, Sample, correct, failed

from actors.cli import UsageError
from actors.supervisor.reporting.run_data import run_results
from actors.supervisor.reporting.run_data.run_reader import RunReader
from protocol.values import Outcome
from scripts.tables import confirm_results, results
from scripts.tables.confirmation_text import (
    ConfirmationPage,
    ConfirmationState,
    ConfirmedWinner,
    confirmation_text,
    confirmed_winner,
    joined_page,
)
from scripts.tables.published_winners import PublishedWinner, read_winner, read_winners

TOP = Path(__file__).parents[2]
RELU, CONV = "level1_1_Relu", "level2_1_Conv"
TASK = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            x = torch.relu(x)
        return x


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
"""
FASTER = """\
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)
"""
CORRECT = ("confirmed", "first look", "not faster")
COMMENT = (
    "# {}: the candidate of attempt 3, as its model wrote it (m).\n# 12 µs a call; eager PyTorch:"
    " 1.02 ms, 31.11× (30.30–31.43) (first look), on NVIDIA H100.\n\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Published winners (a right one, a wrong one, one of an own task), and their problems."""
    level = tmp_path / "bench" / "KernelBench" / "level1"
    level.mkdir(parents=True)
    for name in ("1_Relu", "2_Other"):
        (level / f"{name}.py").write_text(TASK)
    (tmp_path / "own.py").write_text(TASK)
    published = tmp_path / "published"
    published.mkdir()
    (published / f"{RELU}.py").write_text(COMMENT.format(RELU) + FASTER)
    wrong = FASTER.replace("relu(x)", "relu(x) + 0.1")
    (published / "level1_2_Other.py").write_text(COMMENT.format("level1_2_Other") + wrong)
    (published / "own.py").write_text(FASTER)
    (tmp_path / "stark.toml").write_text("[limits]\ntime_s = 0.1\n")
    return tmp_path


def run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    arguments = ["published", "--root", "bench", "--task", "own.py", "--device", "cpu", *more]
    return subprocess.run(
        [sys.executable, "-m", "scripts.tables.confirm_results", *arguments],
        cwd=folder, text=True, capture_output=True, timeout=280, env=_environment(),
    )  # fmt: skip


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(TOP)}


def rows_in(folder: Path) -> dict[str, dict[str, object]]:
    rows = json.loads((folder / "confirmed.json").read_text())
    return {row["task"]: row for row in rows}


def test_what_a_results_page_writes_is_read_back(tmp_path: Path) -> None:
    """The figures above a winner and the source below them, exactly as its model wrote it."""
    Sample(tmp_path / "run", names=("level1_1_Relu_",)).db.close()
    assert 0 == results.main([str(tmp_path / "run"), "--out", str(tmp_path / "out")])
    (winner,) = read_winners(tmp_path / "out")
    assert ("level1_1_Relu_", WINNER) == (winner.task, winner.source)
    assert winner.figures is not None
    assert (2.5, "confirmed", "Test CPU, 2 cores") == (
        winner.figures.speedup, winner.figures.label, winner.figures.hardware,
    )  # fmt: skip


def test_a_file_without_figures_is_all_source(tmp_path: Path) -> None:
    """Any folder of candidates can be judged; a comment of the candidate's own stays in it."""
    (tmp_path / "t.py").write_text("# mine\n# 3 µs a call\n\nx = 1\n")
    winner = read_winner(tmp_path / "t.py")
    assert (None, "# mine\n# 3 µs a call\n\nx = 1\n") == (winner.figures, winner.source)


def test_the_published_results_can_be_read() -> None:
    """All files of docs/results have their figures and their problem's name."""
    winners = read_winners(TOP / "docs" / "results", ["level1_*"])
    assert len(winners) == 4
    assert all(one.figures is not None and "class ModelNew" in one.source for one in winners)
    assert [6, 40, 42, 82] == [int(one.task.split("_")[1]) for one in winners]


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["nowhere"], "nowhere is not a folder"),
        (["published", "--only", "level9*"], "--only level9*: published has no such winner"),
        (["published"], "own is not a problem of KernelBench: give --task FILE"),
        (["published", "--task", "own.py"], "where is level1_1_Relu? give --root CHECKOUT"),
        (["published", "--page", "--results", "none"], "--page: none has no run"),
    ],
)
def test_usage_errors_are_one_line(
    folder: Path, argv: list[str], reason: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Nothing is made, and the line names the flag."""
    monkeypatch.chdir(folder)
    assert 2 == confirm_results.main(argv)
    assert reason in capsys.readouterr().err
    assert not (folder / "results").exists()


def test_a_problem_of_another_checkout_is_refused(folder: Path) -> None:
    """Numbers alone do not name a problem: KernelBench has changed some of its names."""
    level = folder / "bench" / "KernelBench" / "level1"
    (level / "1_Relu.py").rename(level / "1_ReLU_new.py")
    winners = read_winners(folder / "published", [RELU])
    with pytest.raises(UsageError, match="has level1_1_ReLU_new in the place of level1_1_Relu"):
        confirm_results._sources(winners, folder / "bench", [])


def row_of(sample: Sample, name: str) -> ConfirmedWinner:
    """Return the row of a task's winner, as the page of this run would have it."""
    reader = RunReader(sample.path)
    snapshot = reader.poll()
    reader.close()
    assert snapshot is not None
    state = next(one for one in snapshot.tasks if one.name == name)
    result = run_results.run_results(snapshot, sample.settings).tasks[0]
    return confirmed_winner(PublishedWinner(task=name, source=WINNER, figures=None), state, result)


def test_a_winner_that_is_wrong_when_it_is_judged_again_is_told_with_its_reason(
    tmp_path: Path,
) -> None:
    """Its first look's figure stays in the file, and it is not called a first look any more."""
    nodes = ((1, 0, correct(400.0)),)
    sample = Sample(tmp_path / "run", names=(RELU,), budget=1, nodes=nodes, status="stopped")
    row = row_of(sample, RELU)
    assert (ConfirmationState.FIRST_LOOK, True) == (row.state, row.is_open)
    sample.confirm(RELU, 1, failed(Outcome.WRONG, "the buffer running_mean differs", "check"))
    sample.db.execute("UPDATE task SET status = 'finished'")
    row = row_of(sample, RELU)
    assert (ConfirmationState.FAILED, "wrong", None) == (row.state, row.verdict, row.speedup)
    assert (2.5, False) == (row.first_look, row.is_open)
    text = confirmation_text(ConfirmationPage(lines=(), winners=(row,)))
    assert "**wrong** (the buffer running_mean differs)" in text
    assert "1 of 1 published winners judged again: 1 failed." in text


def test_a_run_is_stopped_moved_and_goes_on(folder: Path) -> None:
    """First looks, one of them wrong; the folder is elsewhere then, and other winners are refused.

    The run is the ordinary one: its folder can be resumed, shown and exported.
    """
    looks = run(folder, "--results", "r", "--first-looks", "--only", "level1*")
    assert 3 == looks.returncode, looks.stderr
    assert "confirmations and baselines are left for a later start" in looks.stdout
    assert "continue with" in looks.stderr
    rows = rows_in(folder / "r")
    assert rows[RELU]["state"] in CORRECT  # on a busy machine one look may not be enough
    assert (True, "failed") == (rows[RELU]["is_open"], rows["level1_2_Other"]["state"])
    assert rows[RELU]["published"]["speedup"] == 31.11  # type: ignore[index]
    assert "output[0, 0]" in str(rows["level1_2_Other"]["reason"])
    shutil.move(folder / "r", folder / "moved")
    again = run(folder, "--results", "moved", "--first-looks", "--only", "level1*")
    assert (3, rows) == (again.returncode, rows_in(folder / "moved")), again.stderr
    page = run(folder, "--results", "moved", "--page", "--only", "level1*", "--commit", "abc1")
    assert "by commit abc1" in page.stdout
    other = run(folder, "--results", "moved")
    assert 2 == other.returncode
    assert "moved is of other winners" in other.stderr


@pytest.mark.long
def test_a_winner_is_confirmed_and_then_nothing_is_left(folder: Path) -> None:
    """The confirmed figure is of the drop-in file; the same command again runs nothing."""
    done = run(folder, "--results", "r", "--only", "own")
    assert 0 == done.returncode, done.stderr
    row = rows_in(folder / "r")["own"]
    assert row["state"] in CORRECT
    assert (False, "correct") == (row["is_open"], row["verdict"])
    assert row["first_look"] != row["speedup"]
    again = run(folder, "--results", "r", "--only", "own")
    assert (0, "| own") == (again.returncode, again.stdout[again.stdout.index("| own") :][:5])
    assert "judged again: correct" not in again.stdout


def test_winners_of_a_gpu_are_not_judged_on_a_processor_unasked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a GPU and without --device the command says so, and makes no run."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    argv = ["published", "--root", "bench", "--only", RELU, "--results", "again"]
    assert 2 == confirm_results.main(argv)
    assert "these winners are of NVIDIA H100, and no GPU" in capsys.readouterr().err
    assert not (folder / "again" / "run").exists()


def test_another_run_fills_what_one_run_lacks() -> None:
    """A confirmed winner and torch.compile's times, on this run's clock and the same device."""
    own = ConfirmedWinner(
        task=RELU, state=ConfirmationState.FIRST_LOOK, device="card", eager_us=100.0, us=20.0,
        speedup=5.0,
    )  # fmt: skip
    page = ConfirmationPage(
        lines=("- torch.compile: measured for 0 of 1 problems",), winners=(own,)
    )
    measured = ConfirmedWinner(
        task=RELU, state=ConfirmationState.OPEN, device="card", eager_us=200.0, compile_us=60.0
    )
    joined = joined_page(page, (measured,))
    (row,) = joined.winners
    assert (30.0, None, 1.5) == (row.compile_us, row.max_autotune_us, row.speedup_compile)
    assert "measured for 1 of 1 problems, max-autotune for 0" in joined.lines[0]
    confirmed = replace(own, state=ConfirmationState.CONFIRMED, speedup=4.0)
    assert (confirmed,) == joined_page(page, (confirmed,)).winners
    elsewhere = replace(confirmed, device="another card")
    assert (own,) == joined_page(page, (elsewhere,)).winners
    open_row = ConfirmedWinner(task=RELU, state=ConfirmationState.OPEN, is_open=True)
    assert (own,) == joined_page(replace(page, winners=(open_row,)), (own,)).winners


def test_the_rows_of_an_earlier_page_are_joined(tmp_path: Path) -> None:
    """The JSON of a page stands for its run, which need not be kept; winners it lacks are open."""
    winners = [PublishedWinner(task=name, source=FASTER, figures=None) for name in (RELU, CONV)]
    row = ConfirmedWinner(task=RELU, state=ConfirmationState.CONFIRMED, speedup=4.0, device="card")
    page = tmp_path / "confirmed.json"
    page.write_bytes(msgspec.json.encode([row]))
    known, missing = confirm_results._rows_of(page, winners)
    assert row == known
    assert (CONV, ConfirmationState.OPEN, True) == (missing.task, missing.state, missing.is_open)
