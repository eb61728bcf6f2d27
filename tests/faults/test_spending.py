"""--max-cost with real processes: never passed, nothing lost, and the run can go on."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest
from fake_run import FakeRun
from fake_worker import USD
from msgspec.structs import replace

from protocol import settings as settings_file

BUDGET = 12
AGENTS = ("planner", "coder", "debugger")


def charged(run: FakeRun) -> int:
    """Return how many calls the server has on its bill."""
    path = run.run_dir / "charged.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0


def counted(run: FakeRun) -> float:
    return run.rows("SELECT COALESCE(SUM(usd), 0) FROM call")[0][0]


def test_killed_agents_calls_are_counted_and_the_cap_holds(tmp_path: Path) -> None:
    """Agents are killed as they call: what is counted covers the bill, and both stay in the cap."""
    rng = Random(11)
    cap = 2.0
    run = FakeRun(tmp_path / "run", budget=BUDGET, max_cost=cap)
    run.start_all()
    try:
        killed = 0
        until = time.monotonic() + 90
        while not run.over() and time.monotonic() < until:
            bill = charged(run)
            if bill > killed + 1:
                for place in AGENTS:
                    if run.children[place].poll() is None:
                        run.kill(place)
                killed = bill
            run.revive()
            time.sleep(rng.uniform(0.0, 0.02))
        run.wait()
        assert run.rows("SELECT status FROM run") == [("finished",)]
        assert charged(run) * USD <= counted(run) + 1e-9
        assert counted(run) <= cap
        assert run.rows("SELECT COUNT(*) FROM reservation WHERE state = 'open'") == [(0,)]
        assert run.rows("SELECT COUNT(*) FROM node WHERE number > 0") == [(BUDGET,)]
    finally:
        run.stop()


@pytest.mark.parametrize("cap", [0.02, 0.1])
def test_a_spent_cap_stops_the_run_and_a_larger_one_goes_on(cap: float, tmp_path: Path) -> None:
    """It ends blocked, before the call that could pass the cap; with more money it finishes."""
    run = FakeRun(tmp_path / "run", budget=BUDGET, max_cost=cap, in_flight=3)
    run.start_all()
    try:
        run.wait()
        ((status, reason),) = run.rows("SELECT status, reason FROM run")
        assert status == "blocked"
        assert f"--max-cost {cap:g}" in reason
        assert charged(run) * USD <= cap
        assert charged(run) * USD == pytest.approx(counted(run))
        before = run.nodes()
    finally:
        run.stop()
    settings = settings_file.read(run.run_dir)
    settings_file.write(run.run_dir, replace(settings, max_cost=5.0))
    run.start_all()
    try:
        run.wait()
        assert run.rows("SELECT status FROM run") == [("finished",)]
        assert set(before) <= set(run.nodes())
        assert charged(run) * USD == pytest.approx(counted(run))
    finally:
        run.stop()


POINTS = (
    *("coordinator.hear.ReserveBudget=kill@2", "coordinator.heard.ReserveBudget=kill@3"),
    *("coordinator.send.BudgetReserved=kill@4", "coordinator.sent.BudgetReserved=kill@2"),
    *(
        "planner.sent.ReserveBudget=kill",
        "planner.hear.BudgetReserved=kill@2",
        "planner.send.CallCompleted=kill@2",
    ),
    *(
        "coder.heard.BudgetReserved=kill",
        "coder.sent.CallCompleted=kill@2",
        "coder.send.ReserveBudget=duplicate@2",
    ),
    "planner.send.ReserveBudget=drop@3",
)


def test_leave_is_asked_and_given_once_whatever_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before and after each word about money, words lost and doubled: the run ends, the
    books cover the bill, and nothing stays reserved."""
    monkeypatch.setenv("STARK_FAILPOINTS", ";".join(POINTS))
    cap = 3.0
    run = FakeRun(tmp_path / "run", budget=BUDGET, max_cost=cap)
    run.start_all()
    try:
        run.wait(100)
        assert run.rows("SELECT status FROM run") == [("finished",)]
        assert charged(run) * USD <= counted(run) + 1e-9
        assert counted(run) <= cap
        assert run.rows("SELECT COUNT(*) FROM reservation WHERE state = 'open'") == [(0,)]
        assert run.rows("SELECT COUNT(*) FROM node WHERE number > 0") == [(BUDGET,)]
        assert len(list((run.run_dir / "failpoints").iterdir())) == len(POINTS)
    finally:
        run.stop()
