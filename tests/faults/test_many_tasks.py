"""A run of many tasks: a few are open at once, in their order, whatever dies meanwhile."""

from __future__ import annotations

from pathlib import Path

from fake_run import FakeRun

TASKS = tuple(f"task{number}" for number in range(7))
OPEN = 2
BUDGET = 3


def most_open(run: FakeRun) -> int:
    """Return the largest number of tasks between their first lease and their end."""
    begins = run.rows(
        "SELECT MIN(granted), 1 FROM lease GROUP BY substr(work, 1, instr(work, '/') - 1)"
    )
    ends = run.rows("SELECT at, -1 FROM event WHERE what = 'task over'")
    largest = under_way = 0
    for _at, change in sorted(begins + ends):
        under_way += change
        largest = max(largest, under_way)
    return largest


def test_tasks_open_in_their_order_and_never_too_many(tmp_path: Path) -> None:
    """All are finished, no more than asked for at once, also after the coordinator was killed."""
    run = FakeRun(tmp_path / "run", budget=BUDGET, tasks=TASKS, tasks_at_once=OPEN)
    run.start_all()
    try:
        for wanted in (5, 14):
            while run.progress() < wanted:
                run.revive()
            run.kill("coordinator")
            run.revive()
        run.wait()
    finally:
        run.stop()
    first = run.rows("SELECT task FROM node WHERE number = 0 ORDER BY id")

    assert list(TASKS) == [task for (task,) in first]
    assert run.rows("SELECT COUNT(*) FROM node WHERE number > 0") == [(len(TASKS) * BUDGET,)]
    assert most_open(run) == OPEN
    assert run.rows("SELECT COUNT(*) FROM lease WHERE ended IS NULL") == [(0,)]
