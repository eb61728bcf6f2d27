"""The supervisor killed, or asked to stop on a full disk: nothing is left, and the run goes on."""

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
Play = Callable[[Scene], SupervisedMachine]

BUDGET = 6
POINTS = ("after-spawn@3", "heard.Welcome", "before-reap", "after-reap", "sent.WorkerLost")
# Deaths for it to see, at moments when no candidate runs: nobody is charged with them.
DEATHS = ("coder.before-work", "planner.before-work", "coder.hear.Write")


RUNS = "SELECT MAX(epoch) FROM lease WHERE ended IS NULL AND running = 1 AND work LIKE '%/evaluate'"
CUTS = 3  # one more than evaluators that may be lost


def machine(folder: Path, failpoints: str = "") -> SupervisedMachine:
    folder.mkdir()
    (task,) = sample_tasks.write(folder, tasks=1, budget=BUDGET, seed=4, cheap=True)
    argv = [*armed(failpoints), "--task", task.name, "--budget", str(BUDGET)]
    argv += ["--model", "script:script.jsonl", "--run-dir", "run", "--device", "cpu"]
    return SupervisedMachine("host", argv, folder, folder / "run")


def armed(failpoints: str) -> list[str]:
    """Return how the supervisor is called with these; another scene's goes without."""
    return ["env", f"STARK_FAILPOINTS={failpoints}", *chaos_machines.command(cheap=True)]


def wait(host: SupervisedMachine, limit_s: float = 60.0) -> int:
    until = time.monotonic() + limit_s
    while host.status() is None and time.monotonic() < until:
        time.sleep(0.02)
    status = host.status()
    assert status is not None, host.last_line()
    return status


def undisturbed(folder: Path) -> SupervisedMachine:
    """Nobody does anything to it."""
    host = machine(folder)
    host.start()
    assert wait(host) in (0, 1), host.last_line()
    return host


def killed_at_each_point(folder: Path) -> SupervisedMachine:
    """It is killed at each of its points, and taken up again."""
    points = [f"supervisor.{point.partition('@')[0]}=kill@{point.partition('@')[2] or 1}"
              for point in POINTS] + [f"{point}=kill" for point in DEATHS]  # fmt: skip
    host = machine(folder, ";".join(points))
    host.start()
    kills = 0
    while (status := wait(host)) == -9:
        kills += 1
        if not (host.run_dir / "stark.toml").exists():
            break
        host._argv = [*armed(";".join(points)), "--resume", "run"]
        host.start()

    assert status in (0, 1), host.last_line()
    assert len(POINTS) == kills
    return host


def cut_under_one_candidate(folder: Path) -> SupervisedMachine:
    """The power fails each time when the same candidate runs, which takes a second."""
    slow = "evaluator.after-work=sleep:1@each"
    host = machine(folder, slow)
    host.start()
    last = 0
    for cut in range(1, CUTS + 1):
        while ledger_diff.number(host.run_dir, RUNS) <= last:
            assert host.status() is None, host.last_line()
            time.sleep(0.01)
        last = ledger_diff.number(host.run_dir, RUNS)
        host.kill()
        host._argv = [*armed("" if cut == CUTS else slow), "--resume", "run"]
        host.start()

    assert wait(host) in (0, 1), host.last_line()
    return host


def stopped_on_a_full_disk(folder: Path) -> SupervisedMachine:
    """No file of it can grow any more when it gets a SIGTERM; then there is room again."""
    host = machine(folder)
    host.start()
    while not ledger_diff.number(host.run_dir, "SELECT COUNT(*) FROM node"):
        assert host.status() is None, host.last_line()
        time.sleep(0.01)
    nothing = (0, resource.RLIM_INFINITY)
    resource.prlimit(host.actors()["coordinator"], resource.RLIMIT_FSIZE, nothing)
    until = time.monotonic() + 60.0
    while "run.db can't be written" not in host.last_line():
        assert host.status() is None, host.last_line()
        assert time.monotonic() < until
        time.sleep(0.05)
    resource.prlimit(host.pid, resource.RLIMIT_FSIZE, nothing)  # its stdout is a file, too
    os.kill(host.pid, signal.SIGTERM)

    assert wait(host) == 3, host.last_line()
    assert {} == chaos_machines.orphans([host.environment_mark()])
    host._argv = [*chaos_machines.command(cheap=True), "--resume", "run"]
    host.start()
    assert wait(host) in (0, 1), host.last_line()
    return host


@pytest.fixture(scope="module")
def play(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Play]:
    """Return the machine when its scene is over, and its run."""

    def one(scene: Scene) -> SupervisedMachine:
        return scene(tmp_path_factory.mktemp("scene") / "host")

    with parallel_scenes.played_in_parallel(request, one) as play:
        yield play


@pytest.fixture(scope="module")
def calm(play: Play) -> SupervisedMachine:
    """A run that nobody disturbs."""
    return play(undisturbed)


@pytest.mark.parametrize("scene", [killed_at_each_point])
def test_a_supervisor_killed_at_each_of_its_points(
    scene: Scene, calm: SupervisedMachine, play: Play
) -> None:
    """Also between a child's death, its burial and the word to the coordinator."""
    host = play(scene)
    assert ledger_diff.ledger(calm.run_dir) == ledger_diff.ledger(host.run_dir)
    assert {} == chaos_machines.orphans([host.environment_mark()])


@pytest.mark.parametrize("scene", [cut_under_one_candidate])
def test_power_cuts_under_one_candidate_are_not_its_doing(
    scene: Scene, calm: SupervisedMachine, play: Play
) -> None:
    """The supervisor dies again and again while the same candidate runs: the candidate is judged
    in the end, as in a run that nobody disturbed."""
    host = play(scene)
    query = "SELECT work, COUNT(*) FROM lease WHERE outcome = 'cut' AND running GROUP BY work"
    assert [CUTS] == [count for _, count in ledger_diff.rows(host.run_dir, query)]
    assert ledger_diff.ledger(calm.run_dir) == ledger_diff.ledger(host.run_dir)


@pytest.mark.parametrize("scene", [stopped_on_a_full_disk])
def test_a_stop_on_a_full_disk_is_a_stop(scene: Scene, calm: SupervisedMachine, play: Play) -> None:
    """Neither run.db nor the results can be written: SIGTERM ends it all the same, with 3, soon
    and with nothing left behind; when there is room it goes on and nothing is missing."""
    host = play(scene)
    assert ledger_diff.ledger(calm.run_dir) == ledger_diff.ledger(host.run_dir)
