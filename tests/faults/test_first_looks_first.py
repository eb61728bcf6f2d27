"""Confirmations come last, give way, and are made once all the same."""

from __future__ import annotations

import pytest
from fake_worker import FakeWorker
from in_process_run import InProcessRun, InstantContext, MakeRun

from actors.coordinator.scheduling import scheduler
from protocol import messages
from protocol.values import Role


def leases(run: InProcessRun, stage: str) -> list[tuple[int, object]]:
    """Return (epoch, outcome) of a stage's leases, in their order."""
    rows = run.rows("SELECT epoch, outcome, work FROM lease ORDER BY epoch")
    return [(epoch, outcome) for epoch, outcome, work in rows if str(work).endswith(f"/{stage}")]


def test_all_tasks_have_first_looks_before_one_is_confirmed(make_run: MakeRun) -> None:
    """A run that is stopped halfway has a result of every task, also with one open at a time."""
    run = make_run(tasks=("t", "u", "v"), tasks_at_once=1, budget=2)
    run.run_out()
    assert run.status == "finished"
    assert leases(run, "evaluate")[-1][0] < leases(run, "confirm")[0][0]
    assert [] == run.differences()


def test_a_start_for_first_looks_alone_confirms_nothing(make_run: MakeRun) -> None:
    """`--first-looks` ends with a verdict for every attempt; the next start confirms."""
    run = make_run(tasks=("t", "u", "v"), tasks_at_once=1, budget=2, first_looks=True)
    run.run_out()
    assert run.status == "idle"
    assert run.rows("SELECT COUNT(*) FROM node WHERE number > 0") == [(6,)]
    assert [] == leases(run, "confirm")
    assert [] == run.differences()


def test_a_confirmation_gives_way_and_comes_again(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another task's candidate ends its lease without a charge; the winner is confirmed later."""
    monkeypatch.setattr(scheduler, "IDLE_S", 0.0)
    run = make_run(tasks=("t", "u"), tasks_at_once=1, budget=1)
    run.until(lambda: bool(leases(run, "evaluate")))  # its answer is on the way
    run.socket.unanswered = (messages.Evaluate, messages.MakePlan)
    run.rounds()
    assert [outcome for _, outcome in leases(run, "confirm")] == [None]
    run.socket.unanswered = ()
    (plan,) = [one for one in run.socket.sent if isinstance(one, messages.MakePlan)][-1:]
    answer = FakeWorker(Role.PLANNER, 0.0).work(plan, InstantContext())  # type: ignore[arg-type]
    run.socket.deliver("planner+1", answer)
    run.run_out()
    assert [outcome for _, outcome in leases(run, "confirm")] == ["preempted", "done", "done"]
    assert [] == run.differences()
