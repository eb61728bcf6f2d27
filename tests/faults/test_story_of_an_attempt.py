"""One attempt's life from a run that was disturbed; a wrong name is one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from scripted_run import TOP, ScriptedRun


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ScriptedRun:
    """A run whose first candidate costs an evaluator."""
    folder = tmp_path_factory.mktemp("story") / "run"
    armed = "evaluator.sent.CandidateRunning=kill"
    with ScriptedRun.playing(folder, budget=4, failpoints=armed) as run:
        run.wait()
    return run


def tell(*arguments: object) -> tuple[int, list[str], list[str]]:
    done = subprocess.run(
        [sys.executable, str(TOP / "scripts" / "story.py"), *map(str, arguments)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()


def test_every_attempt_has_its_story(run: ScriptedRun) -> None:
    """Chosen, leased, bought, judged, recorded, in this order; a loss with who and why."""
    # Killed right after it said that the candidate runs: the word may have gone out or not.
    ((task, hurt, running),) = run.rows(
        "SELECT substr(work, 1, instr(work, '/') - 1), work, running FROM lease"
        " WHERE outcome = 'lost'"
    )
    died = "evaluate by evaluator-0: lost, its process died"
    for number, word, confirmed in run.rows(
        "SELECT number, word, confirmed FROM node WHERE number > 0"
    ):
        status, lines, _ = tell(run.run_dir, f"{task}/{number}")
        text = "\n".join(lines)
        assert status == 0
        assert f"{task}/{number}" == lines[0]
        assert "selected node" in lines[1]
        assert "recorded" in text
        assert (word == "correct" or confirmed == 1) == (", first look" in text)
        assert (confirmed == 1) == ("judged again: correct" in text)
        assert text.count("reply bought") >= 1
        assert (hurt == f"{task}/{number}/evaluate") == (died in text)
        assert (died in text and running == 1) == (f"{died}, charged" in text)


def test_the_task_may_be_left_out_where_there_is_one(run: ScriptedRun) -> None:
    """`3` is enough; the root's story is how the reference was measured."""
    status, lines, _ = tell(run.run_dir, 0)
    assert status == 0
    assert "measure leased to evaluator-0" in lines[1]


@pytest.mark.parametrize("node", ["99", "x", "-1", "other/1", "", "1/2/3", "²", "9" * 30])
def test_a_wrong_name_is_one_line(run: ScriptedRun, node: str) -> None:
    """What is there is said."""
    status, lines, errors = tell(run.run_dir, node)
    assert (2, [], 1) == (status, lines, len(errors))


def test_a_folder_without_a_run_is_one_line(tmp_path: Path) -> None:
    """Also a file that is no database."""
    (tmp_path / "run.db").write_text("no database at all, but long enough to be looked at")
    for folder in (tmp_path, tmp_path / "nowhere"):
        status, lines, errors = tell(folder, 1)
        assert (2, [], 1) == (status, lines, len(errors))
