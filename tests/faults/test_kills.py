"""Killed with -9, stopped, or out of disk: the ledger equals the undisturbed run's."""

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
from fake_run import PLACES, FakeRun

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
def calm(tmp_path_factory: pytest.TempPathFactory) -> list[tuple]:
    """The nodes of a run that nobody disturbs."""
    with running(tmp_path_factory.mktemp("calm") / "run") as run:
        run.wait()
        return run.nodes()


def check_books(run: FakeRun) -> None:
    """Nodes, verdicts and leases agree: every attempt once, one lease done for each stage."""
    assert run.rows("SELECT status FROM run") == [("finished",)]
    assert run.rows("SELECT COUNT(*) FROM lease WHERE ended IS NULL") == [(0,)]
    assert run.rows("SELECT COUNT(*) FROM attempt WHERE state != 'done'") == [(0,)]
    done = run.rows("SELECT work, COUNT(*) FROM lease WHERE outcome = 'done' GROUP BY work")
    assert {count for _, count in done} == {1}
    evaluated = {work for work, _ in done if work.endswith("/evaluate")}
    numbers = run.rows("SELECT number FROM node WHERE number > 0")
    assert {f"t/{number}/evaluate" for (number,) in numbers} == evaluated
    assert sorted(numbers) == [(number,) for number in range(1, BUDGET + 1)]


def test_an_undisturbed_run_is_whole_and_repeats(calm: list[tuple], tmp_path: Path) -> None:
    """Two runs with one seed give the same tree, and its books agree."""
    with running(tmp_path / "run") as run:
        run.wait()
        assert calm == run.nodes()
        check_books(run)


def killed_again_and_again(folder: Path, place: str) -> FakeRun:
    """Kill one process at a random moment after every other node; return the finished run."""
    rng = Random(place)
    with running(folder) as run:
        killed_at = -1
        until = time.monotonic() + 90
        while not run.over() and time.monotonic() < until:
            progress = run.progress()
            if progress > killed_at + 1 and run.children[place].poll() is None:
                time.sleep(rng.uniform(0.0, 0.05))
                if not run.over():
                    run.kill(place)
                    killed_at = progress
            run.revive()
            time.sleep(0.01)
        assert killed_at >= BUDGET // 2
        run.wait()
    return run


@pytest.fixture(scope="module")
def play(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], FakeRun]]:
    """Return the run of a scene: that process is killed again and again."""

    def one(scene: str) -> FakeRun:
        return killed_again_and_again(tmp_path_factory.mktemp("scene") / "run", scene)

    with parallel_scenes.played_in_parallel(request, one) as play:
        yield play


@pytest.mark.parametrize("scene", PLACES)
def test_any_process_killed_again_and_again(
    scene: str, calm: list[tuple], play: Callable[[str], FakeRun]
) -> None:
    """One process is killed at a random moment after every other node: nothing changes."""
    run = play(scene)
    assert calm == run.nodes()
    check_books(run)


def test_all_at_once_several_times(calm: list[tuple], tmp_path: Path) -> None:
    """Power cut: everything dies in the same instant, three times."""
    with running(tmp_path / "run") as run:
        for wanted in (2, 5, 9):
            while run.progress() < wanted:
                time.sleep(0.01)
            for place in PLACES:
                run.kill(place)
            run.revive()
        run.wait()
        assert calm == run.nodes()
        check_books(run)


def test_stopped_past_the_lease_then_continued(calm: list[tuple], tmp_path: Path) -> None:
    """A worker frozen for longer than its lease: its late result is ignored, the tree is whole."""
    with running(tmp_path / "run", in_flight=1) as run:
        while run.progress() < 4:
            time.sleep(0.01)
        pid = run.children["evaluator"].pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(4.5)  # longer than the lease of 3 s
        os.kill(pid, signal.SIGCONT)
        run.wait()
        assert calm == run.nodes()
        check_books(run)


def test_replies_are_bought_once(tmp_path: Path) -> None:
    """An agent killed after its reply was stored does not ask again: one call for each work."""
    with running(tmp_path / "run") as run:
        killed = 0
        while not run.over():
            if run.progress() > killed + 1:
                for place in ("planner", "coder", "debugger"):
                    if run.children[place].poll() is None:
                        run.kill(place)
                killed = run.progress()
            run.revive()
            time.sleep(0.01)
        calls = run.rows("SELECT work, COUNT(*) FROM call WHERE stop != 'lost' GROUP BY work")
        assert {count for _, count in calls} == {1}


def test_a_full_disk_pauses_the_run_and_loses_nothing(calm: list[tuple], tmp_path: Path) -> None:
    """Nothing is acknowledged while the store takes nothing; with room again the run goes on."""
    with running(tmp_path / "run") as run:
        while run.progress() < 4:
            time.sleep(0.01)
        pid = run.children["coordinator"].pid
        room = resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        time.sleep(1.0)  # what was being written when the room went has ended
        full = run.progress()
        time.sleep(1.0)
        assert full == run.progress()
        assert run.children["coordinator"].poll() is None
        resource.prlimit(pid, resource.RLIMIT_FSIZE, room)
        run.wait()
        assert calm == run.nodes()
        check_books(run)
