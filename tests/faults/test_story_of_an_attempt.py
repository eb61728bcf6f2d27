"""`scripts/story.py`: the story of each attempt of a disturbed run; a wrong name is one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fake_run import TOP
from scripted_run import ScriptedRun


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ScriptedRun:
    """A run whose evaluator is killed while it runs the first candidate."""
    folder = tmp_path_factory.mktemp("story") / "run"
    failpoints = "evaluator.sent.CandidateRunning=kill"
    with ScriptedRun.running(folder, budget=4, failpoints=failpoints) as run:
        run.wait()
    return run


def run_story(*arguments: object) -> tuple[int, list[str], list[str]]:
    process = subprocess.run(
        [sys.executable, str(TOP / "scripts" / "story.py"), *map(str, arguments)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return process.returncode, process.stdout.splitlines(), process.stderr.splitlines()


def test_every_attempt_has_its_story(run: ScriptedRun) -> None:
    """A story has selection, reply, verdict and record, and each loss with its slot and reason."""
    # A kill right after CandidateRunning may lose the message; `running` says whether it arrived.
    # On a busy machine the lease expires before the next process says hello.
    ((task, lost_work, outcome, running), *_) = run.rows(
        "SELECT substr(work, 1, instr(work, '/') - 1), work, outcome, running FROM lease"
        " WHERE outcome != 'done'"
    )
    loss_text = f"evaluate by evaluator-0: {outcome}"
    for number, word, confirmed in run.rows(
        "SELECT number, word, confirmed FROM node WHERE number > 0"
    ):
        status, lines, _ = run_story(run.run_dir, f"{task}/{number}")
        text = "\n".join(lines)
        assert status == 0
        assert f"{task}/{number}" == lines[0]
        assert "selected node" in lines[1]
        assert "recorded" in text
        assert (word == "correct" or confirmed == 1) == (", first look" in text)
        assert (confirmed == 1) == ("judged again: correct" in text)
        assert text.count("reply bought") >= 1
        losses = [line for line in lines if loss_text in line]
        assert (lost_work == f"{task}/{number}/evaluate") == bool(losses)
        assert bool(losses and running) == any("charged" in line for line in losses)


def test_a_run_with_one_task_needs_no_task_name(run: ScriptedRun) -> None:
    """A number is enough; the root's story is the measurement of the reference."""
    status, lines, _ = run_story(run.run_dir, 0)
    assert status == 0
    assert "measure leased to evaluator-0" in lines[1]


@pytest.mark.parametrize("node", ["99", "x", "-1", "other/1", "", "1/2/3", "²", "9" * 30])
def test_an_unknown_attempt_is_one_line(run: ScriptedRun, node: str) -> None:
    """Exit status 2, one line on stderr, and nothing on stdout."""
    status, lines, errors = run_story(run.run_dir, node)
    assert (2, [], 1) == (status, lines, len(errors))


def test_a_folder_without_a_run_is_one_line(tmp_path: Path) -> None:
    """An absent folder, or a run.db that is not a database: exit status 2."""
    (tmp_path / "run.db").write_text("no database at all, but long enough to be looked at")
    for folder in (tmp_path, tmp_path / "nowhere"):
        status, lines, errors = run_story(folder, 1)
        assert (2, [], 1) == (status, lines, len(errors))
