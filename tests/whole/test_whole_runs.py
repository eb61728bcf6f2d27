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

from scripts import replay

pytestmark = pytest.mark.timeout(600)  # on a noisy machine a winner is measured up to 15 times
WORKER_SLOTS = ("planner-0", "coder-0", "debugger-0", "evaluator-0")
Scene = Callable[[Path], Command]
RunScene = Callable[[Scene], Command]


def run_undisturbed(folder: Path) -> Command:
    """Run the command to the end without a fault."""
    command = Command(folder)
    status, out, err = command.finish()
    assert status == 0, err
    assert json.loads(out)["tasks"][0]["attempts"] == command.budget
    return command


def kill_every_actor(folder: Path) -> Command:
    """Kill each actor once, at a random moment after another node."""
    rng = Random(7)
    command = Command(folder)
    run = command.start()
    slots = [*WORKER_SLOTS, "coordinator"]
    last_count = -1
    while run.poll() is None:
        node_count = len(command.nodes())
        if node_count > last_count and slots and command.mark():
            last_count = node_count
            time.sleep(rng.uniform(0.0, 1.0))
            command.kill_actor(slots.pop(0))
        time.sleep(0.05)
    _, err = run.communicate()

    assert run.returncode == 0, err
    assert slots == []
    return command


def interrupt_and_kill_supervisor(folder: Path) -> Command:
    """Stop the run twice, by SIGINT and by SIGKILL of the supervisor; resume it each time."""
    command = Command(folder)
    run = command.start()
    wait_for_nodes(command, run, 3)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 3
    assert f"--resume {command.run_dir}" in err
    assert command.processes() == {}

    run = command.start("--resume", str(command.run_dir), "--json")
    wait_for_nodes(command, run, 5)
    first_processes = set(command.processes())
    run.kill()
    run.communicate()
    deadline = time.monotonic() + 10
    while set(command.processes()) & first_processes and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not set(command.processes()) & first_processes

    status, _, err = command.finish("--resume", str(command.run_dir), "--json")
    assert status == 0, err
    return command


def wait_for_nodes(command: Command, run: subprocess.Popen[str], count: int) -> None:
    """Wait until the tree has `count` nodes; the run must not end before."""
    while len(command.nodes()) < count:
        assert run.poll() is None
        time.sleep(0.05)


@pytest.fixture(scope="module")
def undisturbed_run(run_scene: RunScene) -> Command:
    """The command of the undisturbed run."""
    return run_scene(run_undisturbed)


@pytest.fixture(scope="module")
def resumed_run(run_scene: RunScene) -> Command:
    """The command of the run that was interrupted, killed and resumed."""
    return run_scene(interrupt_and_kill_supervisor)


def check_ledger(command: Command) -> None:
    """Check that nodes and leases agree, and that no process or scratch file of the run is left."""
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


@pytest.mark.parametrize(
    "scene",
    [interrupt_and_kill_supervisor, pytest.param(run_undisturbed, marks=pytest.mark.long)],
)
def test_the_result_agrees_with_the_ledger(scene: Scene, run_scene: RunScene) -> None:
    """result.json, run.db and report.html agree, also of a run that was resumed twice."""
    command = run_scene(scene)
    check_ledger(command)
    task = json.loads((command.run_dir / "result.json").read_text())["tasks"][0]
    words = [row[0] for row in command.rows("SELECT word FROM node WHERE number > 0")]

    assert task["correct"] == words.count("correct")
    assert task["status"] == "finished"
    assert task["best"]["speedup_eager"] > 2.0
    low, high = task["best"]["speedup_eager_ci95"]
    assert low <= task["best"]["speedup_eager"] <= high
    assert "<html" in (command.run_dir / "report.html").read_text()


def test_the_winner_runs_alone_and_agrees_with_the_task(
    resumed_run: Command, tmp_path: Path
) -> None:
    """best.py needs no module of ours: in another folder it gives the reference's output."""
    (tmp_path / "chain.py").write_text(TASK)
    best = tmp_path / "best.py"
    best.write_text((resumed_run.run_dir / "best.py").read_text())
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
@pytest.mark.parametrize("scene", [kill_every_actor])
def test_every_actor_killed_in_turn_leaves_the_same_tree(
    scene: Scene, undisturbed_run: Command, run_scene: RunScene
) -> None:
    """SIGKILL to planner, coder, debugger, evaluator and coordinator in turn, at random moments."""
    command = run_scene(scene)
    assert undisturbed_run.nodes() == command.nodes()
    check_ledger(command)


def test_an_interrupted_and_a_killed_run_can_be_resumed(resumed_run: Command) -> None:
    """SIGINT gives status 3 and a line with --resume.  SIGKILL to the supervisor ends every process
    of the run.  The run that was resumed after both has the tree that the search makes of its
    verdicts, decision by decision and request by request."""
    check_ledger(resumed_run)
    assert [] == list(replay.compare(resumed_run.run_dir))


@pytest.mark.long
def test_a_resumed_run_has_the_tree_of_an_undisturbed_one(
    resumed_run: Command, undisturbed_run: Command
) -> None:
    """Figures differ from run to run, and no rank depends on them here."""
    assert undisturbed_run.nodes() == resumed_run.nodes()
