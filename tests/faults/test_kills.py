"""Processes killed by SIGKILL, stopped, or out of disk: nodes equal the undisturbed run's."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import parallel_scenes
import pytest
from fake_run import ROLES, FakeRun

BUDGET = 12


@contextmanager
def running(run_dir: Path, **settings: object) -> Iterator[FakeRun]:
    run = FakeRun(run_dir, **{"budget": BUDGET, **settings})
    run.start_all()
    try:
        yield run
    finally:
        run.stop()


@pytest.fixture(scope="module")
def undisturbed_nodes(tmp_path_factory: pytest.TempPathFactory) -> list[tuple]:
    """The nodes of the undisturbed run."""
    with running(tmp_path_factory.mktemp("undisturbed") / "run") as run:
        run.wait()
        return run.nodes()


def check_ledger(run: FakeRun) -> None:
    """Check that nodes, attempts and leases agree: each attempt once, one done lease per stage."""
    assert run.rows("SELECT status FROM run") == [("finished",)]
    assert run.rows("SELECT COUNT(*) FROM lease WHERE ended IS NULL") == [(0,)]
    assert run.rows("SELECT COUNT(*) FROM attempt WHERE state != 'done'") == [(0,)]
    done = run.rows("SELECT work, COUNT(*) FROM lease WHERE outcome = 'done' GROUP BY work")
    assert {count for _, count in done} == {1}
    evaluated = {work for work, _ in done if work.endswith("/evaluate")}
    numbers = run.rows("SELECT number FROM node WHERE number > 0")
    assert {f"t/{number}/evaluate" for (number,) in numbers} == evaluated
    assert sorted(numbers) == [(number,) for number in range(1, BUDGET + 1)]


def test_an_undisturbed_run_is_complete_and_reproducible(
    undisturbed_nodes: list[tuple], tmp_path: Path
) -> None:
    """Two runs with one seed give the same tree, and the second run's ledger is consistent."""
    with running(tmp_path / "run") as run:
        run.wait()
        assert undisturbed_nodes == run.nodes()
        check_ledger(run)


def run_with_repeated_kills(folder: Path, role: str) -> FakeRun:
    """Kill `role` at a random moment after every other node; return the finished run."""
    rng = Random(role)
    with running(folder) as run:
        killed_at = -1
        deadline = time.monotonic() + 90
        while not run.is_over() and time.monotonic() < deadline:
            progress = run.progress()
            if progress > killed_at + 1 and run.children[role].poll() is None:
                time.sleep(rng.uniform(0.0, 0.05))
                if not run.is_over():
                    run.kill(role)
                    killed_at = progress
            run.revive()
            time.sleep(0.01)
        assert killed_at >= BUDGET // 2
        run.wait()
    return run


@pytest.fixture(scope="module")
def run_scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], FakeRun]]:
    """Return a function: role -> the finished run in which it was killed repeatedly."""

    def run_in_new_folder(scene: str) -> FakeRun:
        return run_with_repeated_kills(tmp_path_factory.mktemp("scene") / "run", scene)

    with parallel_scenes.scenes_in_parallel(request, run_in_new_folder) as run_scene:
        yield run_scene


@pytest.mark.long
@pytest.mark.parametrize("scene", ROLES)
def test_repeated_kills_of_one_process_keep_the_nodes(
    scene: str, undisturbed_nodes: list[tuple], run_scene: Callable[[str], FakeRun]
) -> None:
    """One process is killed at a random moment after every other node: the nodes are the same."""
    run = run_scene(scene)
    assert undisturbed_nodes == run.nodes()
    check_ledger(run)


def test_power_cuts_keep_the_nodes(undisturbed_nodes: list[tuple], tmp_path: Path) -> None:
    """All processes are killed at the same moment, three times: the nodes are the same."""
    with running(tmp_path / "run") as run:
        for node_count in (2, 5, 9):
            while run.progress() < node_count:
                time.sleep(0.01)
            for role in ROLES:
                run.kill(role)
            run.revive()
        run.wait()
        assert undisturbed_nodes == run.nodes()
        check_ledger(run)


def test_a_worker_stopped_past_its_lease_keeps_the_nodes(
    undisturbed_nodes: list[tuple], tmp_path: Path
) -> None:
    """The late result of a worker that was stopped for longer than its lease is ignored."""
    with running(tmp_path / "run", in_flight=1) as run:
        while run.progress() < 4:
            time.sleep(0.01)
        pid = run.children["evaluator"].pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(4.5)  # longer than the lease of 3 s
        os.kill(pid, signal.SIGCONT)
        run.wait()
        assert undisturbed_nodes == run.nodes()
        check_ledger(run)


def test_replies_are_bought_once(tmp_path: Path) -> None:
    """Killed agents do not buy a stored reply again: each piece of work has one call."""
    with running(tmp_path / "run") as run:
        nodes_at_kill = 0
        while not run.is_over():
            if run.progress() > nodes_at_kill + 1:
                for role in ("planner", "coder", "debugger"):
                    if run.children[role].poll() is None:
                        run.kill(role)
                nodes_at_kill = run.progress()
            run.revive()
            time.sleep(0.01)
        calls = run.rows("SELECT work, COUNT(*) FROM call WHERE stop != 'lost' GROUP BY work")
        assert {count for _, count in calls} == {1}


def test_a_full_disk_pauses_the_run_and_loses_nothing(
    undisturbed_nodes: list[tuple], tmp_path: Path
) -> None:
    """No result is acknowledged while the store can't write; the run goes on when it can again."""
    with running(tmp_path / "run") as run:
        while run.progress() < 4:
            time.sleep(0.01)
        pid = run.children["coordinator"].pid
        old_limit = resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        time.sleep(1.0)  # a write that was under way has ended by now
        nodes_when_full = run.progress()
        time.sleep(1.0)
        assert nodes_when_full == run.progress()
        assert run.children["coordinator"].poll() is None
        resource.prlimit(pid, resource.RLIMIT_FSIZE, old_limit)
        run.wait()
        assert undisturbed_nodes == run.nodes()
        check_ledger(run)
