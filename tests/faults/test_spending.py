"""--max-cost with real processes: the cost never exceeds it, no call is lost, the run can go on."""

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
AGENT_ROLES = ("planner", "coder", "debugger")


def charged_calls(run: FakeRun) -> int:
    """Return the number of calls that the server has charged."""
    path = run.run_dir / "charged.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0


def counted_usd(run: FakeRun) -> float:
    return run.rows("SELECT COALESCE(SUM(usd), 0) FROM call")[0][0]


def test_calls_of_killed_agents_are_counted_and_the_cap_holds(tmp_path: Path) -> None:
    """Agents are killed during calls: the counted cost covers the bill and stays within the cap."""
    rng = Random(11)
    cap_usd = 2.0
    run = FakeRun(tmp_path / "run", budget=BUDGET, max_cost=cap_usd)
    run.start_all()
    try:
        calls_at_kill = 0
        deadline = time.monotonic() + 90
        while not run.is_over() and time.monotonic() < deadline:
            call_count = charged_calls(run)
            if call_count > calls_at_kill + 1:
                for role in AGENT_ROLES:
                    if run.children[role].poll() is None:
                        run.kill(role)
                calls_at_kill = call_count
            run.revive()
            time.sleep(rng.uniform(0.0, 0.02))
        run.wait()
        assert run.rows("SELECT status FROM run") == [("finished",)]
        assert charged_calls(run) * USD <= counted_usd(run) + 1e-9
        assert counted_usd(run) <= cap_usd
        assert run.rows("SELECT COUNT(*) FROM reservation WHERE state = 'open'") == [(0,)]
        assert run.rows("SELECT COUNT(*) FROM node WHERE number > 0") == [(BUDGET,)]
    finally:
        run.stop()


@pytest.mark.parametrize("cap_usd", [0.02, 0.1])
def test_a_spent_cap_stops_the_run_and_a_larger_cap_continues_it(
    cap_usd: float, tmp_path: Path
) -> None:
    """The run ends as blocked before a call that could exceed the cap; a larger cap finishes it."""
    run = FakeRun(tmp_path / "run", budget=BUDGET, max_cost=cap_usd, in_flight=3)
    run.start_all()
    try:
        run.wait()
        ((status, reason),) = run.rows("SELECT status, reason FROM run")
        assert status == "blocked"
        assert f"--max-cost {cap_usd:g}" in reason
        assert charged_calls(run) * USD <= cap_usd
        assert charged_calls(run) * USD == pytest.approx(counted_usd(run))
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
        assert charged_calls(run) * USD == pytest.approx(counted_usd(run))
    finally:
        run.stop()


FAILPOINTS = (
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


def test_reservations_survive_kills_and_message_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes are killed before and after the messages about budget; some messages are lost or
    doubled.  The run ends, the counted cost covers the bill, and no reservation stays open."""
    monkeypatch.setenv("STARK_FAILPOINTS", ";".join(FAILPOINTS))
    cap_usd = 3.0
    run = FakeRun(tmp_path / "run", budget=BUDGET, max_cost=cap_usd)
    run.start_all()
    try:
        run.wait(100)
        assert run.rows("SELECT status FROM run") == [("finished",)]
        assert charged_calls(run) * USD <= counted_usd(run) + 1e-9
        assert counted_usd(run) <= cap_usd
        assert run.rows("SELECT COUNT(*) FROM reservation WHERE state = 'open'") == [(0,)]
        assert run.rows("SELECT COUNT(*) FROM node WHERE number > 0") == [(BUDGET,)]
        assert len(list((run.run_dir / "failpoints").iterdir())) == len(FAILPOINTS)
    finally:
        run.stop()
