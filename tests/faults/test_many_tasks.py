"""A run of many tasks: a few are open at once, in their order, even if the coordinator dies."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from fake_run import FakeRun

TASKS = tuple(f"task{number}" for number in range(7))
TASKS_AT_ONCE = 2
BUDGET = 3


def most_tasks_open(run: FakeRun) -> int:
    """Return the largest number of tasks between their first lease and their last first look."""
    begins = run.rows(
        "SELECT MIN(granted), 1 FROM lease GROUP BY substr(work, 1, instr(work, '/') - 1)"
    )
    ends = run.rows("SELECT MAX(at), -1 FROM node GROUP BY task")
    largest = under_way = 0
    for _at, change in sorted(begins + ends):
        under_way += change
        largest = max(largest, under_way)
    return largest


def test_tasks_open_in_order_and_within_the_limit(tmp_path: Path) -> None:
    """All tasks finish, and at most `tasks_at_once` are open, also if the coordinator dies."""
    run = FakeRun(tmp_path / "run", budget=BUDGET, tasks=TASKS, tasks_at_once=TASKS_AT_ONCE)
    run.start_all()
    try:
        for node_count in (5, 14):
            while run.progress() < node_count:
                run.revive()
            run.kill("coordinator")
            run.revive()
        run.wait()
    finally:
        run.stop()
    opened = run.rows("SELECT task FROM node WHERE number = 0 ORDER BY id")

    assert list(TASKS) == [task for (task,) in opened]
    assert run.rows("SELECT COUNT(*) FROM node WHERE number > 0") == [(len(TASKS) * BUDGET,)]
    assert most_tasks_open(run) == TASKS_AT_ONCE
    assert run.rows("SELECT COUNT(*) FROM lease WHERE ended IS NULL") == [(0,)]


def test_a_phase_without_agents_measures_every_task(tmp_path: Path) -> None:
    """With `until_idle` and an evaluator alone, tasks that wait for agents hold up no other."""
    run = FakeRun(
        tmp_path / "run",
        budget=BUDGET,
        tasks=TASKS,
        tasks_at_once=TASKS_AT_ONCE,
        until_idle=True,
        planners=0,
        coders=0,
        debuggers=0,
    )
    run.start("coordinator")
    run.start("evaluator")
    try:
        run.wait()
    finally:
        run.stop()
    assert sorted(TASKS) == [task for (task,) in run.rows("SELECT task FROM node ORDER BY task")]
    assert run.rows("SELECT status FROM run") == [("idle",)]


def test_a_phase_waits_for_the_evaluators_of_its_own_jobs(tmp_path: Path) -> None:
    """With `until_idle` and `launch`, a job may begin late: the run does not end before it."""
    run = FakeRun(
        tmp_path / "run", budget=BUDGET, until_idle=True, evaluators=0, launch="local:fleet.toml"
    )
    agents = ("planner", "coder", "debugger")
    for role in ("coordinator", *agents):
        run.start(role)
    try:
        give_up = time.monotonic() + 30
        while known_workers(run) < len(agents) and not run.is_over():
            assert time.monotonic() < give_up
            time.sleep(0.02)
        run.start("evaluator")
        run.wait()
    finally:
        run.stop()
    assert [(BUDGET,)] == run.rows("SELECT COUNT(*) FROM node WHERE number > 0")


def known_workers(run: FakeRun) -> int:
    """Return how many workers have said hello."""
    try:
        return int(run.rows("SELECT COUNT(*) FROM worker")[0][0])
    except sqlite3.OperationalError:  # no database yet
        return 0
