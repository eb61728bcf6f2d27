"""The supervisor is killed, or stopped on a full disk: no process is left, and the run resumes."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import parallel_scenes
import pytest

from scripts.faults import chaos_machines, ledger_diff, sample_tasks
from scripts.faults.chaos_machines import SupervisedMachine

Scene = Callable[[Path], SupervisedMachine]
RunScene = Callable[[Scene], SupervisedMachine]

BUDGET = 6
SUPERVISOR_POINTS = (
    "after-spawn@3",
    "heard.Welcome",
    "before-reap",
    "after-reap",
    "sent.WorkerLost",
)
# Actors are killed here so that the supervisor reaps children.  No candidate runs at these moments,
# so no loss is charged.
ACTOR_POINTS = ("coder.before-work", "planner.before-work", "coder.hear.Write")


RUNNING_EPOCH = (
    "SELECT MAX(epoch) FROM lease WHERE ended IS NULL AND running = 1 AND work LIKE '%/evaluate'"
)
POWER_CUTS = 3  # one more than the charged losses that end a candidate as `crashed`


def machine(folder: Path, failpoints: str = "") -> SupervisedMachine:
    folder.mkdir()
    (task,) = sample_tasks.write(folder, tasks=1, budget=BUDGET, seed=4, cheap=True)
    argv = [*command_with(failpoints), "--task", task.name, "--budget", str(BUDGET)]
    argv += ["--model", "script:script.jsonl", "--run-dir", "run", "--device", "cpu"]
    return SupervisedMachine("host", argv, folder, folder / "run")


def command_with(failpoints: str) -> list[str]:
    """Return the supervisor's command line; `env` arms the failpoints of this run alone."""
    return ["env", f"STARK_FAILPOINTS={failpoints}", *chaos_machines.command(cheap=True)]


def wait(host: SupervisedMachine, timeout_s: float = 60.0) -> int:
    deadline = time.monotonic() + timeout_s
    while host.status() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    status = host.status()
    assert status is not None, host.last_line()
    return status


def run_undisturbed(folder: Path) -> SupervisedMachine:
    """Run to the end without a fault."""
    host = machine(folder)
    host.start()
    assert wait(host) in (0, 1), host.last_line()
    return host


def kill_at_each_point(folder: Path) -> SupervisedMachine:
    """Kill the supervisor at each of its failpoints, and resume the run each time."""
    points = [f"supervisor.{point.partition('@')[0]}=kill@{point.partition('@')[2] or 1}"
              for point in SUPERVISOR_POINTS]  # fmt: skip
    points += [f"{point}=kill" for point in ACTOR_POINTS]
    host = machine(folder, ";".join(points))
    host.start()
    kills = 0
    while (status := wait(host)) == -9:
        kills += 1
        if not (host.run_dir / "stark.toml").exists():
            break
        host._argv = [*command_with(";".join(points)), "--resume", "run"]
        host.start()

    assert status in (0, 1), host.last_line()
    assert len(SUPERVISOR_POINTS) == kills
    return host


def cut_power_under_one_candidate(folder: Path) -> SupervisedMachine:
    """Kill the supervisor each time when the same candidate runs; a candidate takes a second."""
    slow = "evaluator.after-work=sleep:1@each"
    host = machine(folder, slow)
    host.start()
    last = 0
    for cut in range(1, POWER_CUTS + 1):
        while ledger_diff.number(host.run_dir, RUNNING_EPOCH) <= last:
            assert host.status() is None, host.last_line()
            time.sleep(0.01)
        last = ledger_diff.number(host.run_dir, RUNNING_EPOCH)
        host.kill()
        host._argv = [*command_with("" if cut == POWER_CUTS else slow), "--resume", "run"]
        host.start()

    assert wait(host) in (0, 1), host.last_line()
    return host


def stop_on_full_disk(folder: Path) -> SupervisedMachine:
    """Send SIGTERM while no file of the run can grow; then resume without that limit."""
    host = machine(folder)
    host.start()
    while not ledger_diff.number(host.run_dir, "SELECT COUNT(*) FROM node"):
        assert host.status() is None, host.last_line()
        time.sleep(0.01)
    no_growth = (0, resource.RLIM_INFINITY)
    resource.prlimit(host.actors()["coordinator"], resource.RLIMIT_FSIZE, no_growth)
    deadline = time.monotonic() + 60.0
    while "run.db can't be written" not in host.last_line():
        assert host.status() is None, host.last_line()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    resource.prlimit(
        host.pid, resource.RLIMIT_FSIZE, no_growth
    )  # the supervisor's stdout is a file, too
    os.kill(host.pid, signal.SIGTERM)

    assert wait(host) == 3, host.last_line()
    assert {} == chaos_machines.orphans([host.environment_mark()])
    host._argv = [*chaos_machines.command(cheap=True), "--resume", "run"]
    host.start()
    assert wait(host) in (0, 1), host.last_line()
    return host


@pytest.fixture(scope="module")
def run_scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunScene]:
    """Return a function: scene -> the machine after the scene."""

    def run_in_new_folder(scene: Scene) -> SupervisedMachine:
        return scene(tmp_path_factory.mktemp("scene") / "host")

    with parallel_scenes.scenes_in_parallel(request, run_in_new_folder) as run_scene:
        yield run_scene


@pytest.fixture(scope="module")
def undisturbed_run(run_scene: RunScene) -> SupervisedMachine:
    """The machine of the undisturbed run."""
    return run_scene(run_undisturbed)


@pytest.mark.long
@pytest.mark.parametrize("scene", [kill_at_each_point])
def test_a_supervisor_killed_at_each_failpoint_keeps_the_ledger(
    scene: Scene, undisturbed_run: SupervisedMachine, run_scene: RunScene
) -> None:
    """The kills include the moments between a child's death, its reaping and WorkerLost."""
    host = run_scene(scene)
    assert ledger_diff.ledger(undisturbed_run.run_dir) == ledger_diff.ledger(host.run_dir)
    assert {} == chaos_machines.orphans([host.environment_mark()])


@pytest.mark.long
@pytest.mark.parametrize("scene", [cut_power_under_one_candidate])
def test_power_cuts_under_one_candidate_are_not_charged(
    scene: Scene, undisturbed_run: SupervisedMachine, run_scene: RunScene
) -> None:
    """The supervisor is killed repeatedly while the same candidate runs: the candidate gets the
    same verdict as in the undisturbed run."""
    host = run_scene(scene)
    query = "SELECT work, COUNT(*) FROM lease WHERE outcome = 'cut' AND running GROUP BY work"
    assert [POWER_CUTS] == [count for _, count in ledger_diff.rows(host.run_dir, query)]
    assert ledger_diff.ledger(undisturbed_run.run_dir) == ledger_diff.ledger(host.run_dir)


@pytest.mark.parametrize("scene", [stop_on_full_disk])
def test_a_sigterm_on_a_full_disk_stops_the_run(scene: Scene, run_scene: RunScene) -> None:
    """Neither run.db nor the results can be written: SIGTERM still ends the run with status 3 and
    leaves no process behind.  The run resumes when files can grow again, and no node is missing."""
    host = run_scene(scene)
    assert BUDGET + 1 == ledger_diff.number(host.run_dir, "SELECT COUNT(*) FROM node")
