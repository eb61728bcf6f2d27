"""Whole runs of the command with the real evaluator, disturbed and undisturbed."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from supervisor_command import TASK, Command

PLACES = ("planner-0", "coder-0", "debugger-0", "evaluator-0")
Scene = Callable[[Path], Command]
Play = Callable[[Scene], Command]


def undisturbed(folder: Path) -> Command:
    """Nobody does anything to it."""
    command = Command(folder)
    status, out, err = command.finish()
    assert status == 0, err
    assert json.loads(out)["tasks"][0]["attempts"] == command.budget
    return command


def actors_killed(folder: Path) -> Command:
    """Each of its actors is killed, at a random moment after another node."""
    rng = Random(7)
    command = Command(folder)
    run = command.start()
    places = [*PLACES, "coordinator"]
    seen = -1
    while run.poll() is None:
        nodes = len(command.nodes())
        if nodes > seen and places and command.mark():
            seen = nodes
            time.sleep(rng.uniform(0.0, 1.0))
            command.kill_actor(places.pop(0))
        time.sleep(0.05)
    _, err = run.communicate()

    assert run.returncode == 0, err
    assert places == []
    return command


def supervisor_killed(folder: Path) -> Command:
    """Its supervisor is killed: nothing lives on; then it is resumed."""
    command = Command(folder)
    run = command.start()
    while len(command.nodes()) < 4:
        assert run.poll() is None
        time.sleep(0.05)
    mine = set(command.processes())
    run.kill()
    run.communicate()
    until = time.monotonic() + 10
    while set(command.processes()) & mine and time.monotonic() < until:
        time.sleep(0.05)

    assert not set(command.processes()) & mine
    status, _, err = command.finish("--resume", str(command.run_dir), "--json")
    assert status == 0, err
    return command


def interrupted(folder: Path) -> Command:
    """It gets a SIGINT: status 3, the line that resumes; then the rest."""
    command = Command(folder)
    run = command.start()
    while len(command.nodes()) < 3:
        assert run.poll() is None
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)

    assert run.returncode == 3
    assert f"--resume {command.run_dir}" in err
    assert command.processes() == {}
    status, _, err = command.finish("--resume", str(command.run_dir), "--json")
    assert status == 0, err
    return command


@pytest.fixture(scope="module")
def calm(play: Play) -> Command:
    """A run that nobody disturbs."""
    return play(undisturbed)


def check_ledger(command: Command) -> None:
    """Attempts, nodes and leases agree, and nothing of the run is left on the machine."""
    numbers = [row[0] for row in command.rows("SELECT number FROM node ORDER BY number")]
    assert list(range(command.budget + 1)) == numbers
    assert command.rows("SELECT COUNT(*) FROM lease WHERE ended IS NULL") == [(0,)]
    done = command.rows(
        "SELECT work, COUNT(*) FROM lease WHERE outcome = 'done' AND work LIKE '%/evaluate'"
        " GROUP BY work"
    )
    assert {count for _, count in done} == {1}
    assert command.processes() == {}
    assert not list(command.run_dir.glob("scratch/*"))


@pytest.mark.parametrize("scene", [undisturbed])
def test_the_result_says_what_the_ledger_holds(scene: Scene, play: Play) -> None:
    """result.json, run.db and the files of the run folder tell one story."""
    calm = play(scene)
    check_ledger(calm)
    task = json.loads((calm.run_dir / "result.json").read_text())["tasks"][0]
    words = [row[0] for row in calm.rows("SELECT word FROM node WHERE number > 0")]

    assert task["correct"] == words.count("correct")
    assert task["status"] == "finished"
    assert task["best"]["speedup_eager"] > 2.0
    low, high = task["best"]["speedup_eager_ci95"]
    assert low <= task["best"]["speedup_eager"] <= high
    assert "<html" in (calm.run_dir / "report.html").read_text()


def test_the_winner_runs_alone_and_agrees_with_the_task(calm: Command, tmp_path: Path) -> None:
    """best.py needs nothing of ours: another process, another folder, the reference's output."""
    (tmp_path / "chain.py").write_text(TASK)
    best = tmp_path / "best.py"
    best.write_text((calm.run_dir / "best.py").read_text())
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import torch, chain, best\n"
        "torch.manual_seed(1); model = chain.Model(*chain.get_init_inputs())\n"
        "torch.manual_seed(1); new = best.ModelNew(*chain.get_init_inputs())\n"
        "x = chain.get_inputs()\n"
        "torch.testing.assert_close(new(*x), model(*x))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert importlib.util.spec_from_file_location("best", best) is not None


@pytest.mark.long
@pytest.mark.parametrize("scene", [actors_killed])
def test_every_actor_killed_in_turn_leaves_the_same_tree(
    scene: Scene, calm: Command, play: Play
) -> None:
    """SIGKILL to planner, coder, debugger, evaluator and coordinator in turn, at random moments."""
    command = play(scene)
    assert calm.nodes() == command.nodes()
    check_ledger(command)


@pytest.mark.parametrize("scene", [supervisor_killed])
def test_a_killed_supervisor_leaves_nothing_and_the_run_goes_on(
    scene: Scene, calm: Command, play: Play
) -> None:
    """SIGKILL to the supervisor: every process of the run goes with it; --resume ends the run."""
    command = play(scene)
    assert calm.nodes() == command.nodes()
    check_ledger(command)


@pytest.mark.parametrize("scene", [interrupted])
def test_ctrl_c_drains_and_says_how_to_resume(scene: Scene, calm: Command, play: Play) -> None:
    """One SIGINT: status 3, the line that resumes, a whole ledger; then the rest of the run."""
    command = play(scene)
    assert calm.nodes() == command.nodes()
    check_ledger(command)
