"""torch.compile's times: the search does not wait for them, and a run is over only with them."""

from __future__ import annotations

import pytest
from in_process_run import InProcessRun, MakeRun
from msgspec.structs import replace

from actors import failpoints
from actors.coordinator.gateway.work_messages import WorkMessages
from actors.coordinator.search.attempt_stages import Attempt, Stage
from actors.coordinator.search.search import OfferWork
from protocol import messages
from protocol.messages import Lease
from protocol.settings import JudgeRules
from protocol.values import Reference, Role

ALL = JudgeRules(baselines="all")
MOMENTS = ("before-commit", "after-commit", "after-told", "hear.BaselinesMeasured",
           "heard.BaselinesMeasured", "send.MeasureBaselines", "sent.MeasureBaselines")  # fmt: skip


def reference(run: InProcessRun, task: str = "t") -> Reference:
    found = run.coordinator.store.reference(task)
    assert found is not None
    return found


def baseline_leases(run: InProcessRun) -> list[str]:
    query = "SELECT outcome FROM lease WHERE work LIKE '%/baselines' ORDER BY epoch"
    return [outcome for (outcome,) in run.rows(query)]


def test_a_run_ends_with_its_baselines(make_run: MakeRun) -> None:
    """They are measured after the attempts that could be made, in the reference and in its columns;
    a replay finds no difference."""
    run = make_run(rules=ALL)
    run.run_to(1)
    assert reference(run).baselines_pending
    run.run_out()
    assert ("finished", [50.0, None]) == (
        run.status, list(run.rows("SELECT compile_us, max_autotune_us FROM task")[0]),
    )  # fmt: skip
    assert (50.0, False) == (reference(run).compile_us, reference(run).baselines_pending)
    assert ["done"] == baseline_leases(run)
    assert [] == run.differences()


def test_the_tree_does_not_depend_on_the_baselines(make_run: MakeRun) -> None:
    """No search knows of this work: the nodes are those of a run without it."""
    with_baselines, without = make_run(rules=ALL, tasks=("t", "u")), make_run(tasks=("t", "u"))
    with_baselines.run_out()
    without.run_out()
    assert without.nodes() == with_baselines.nodes()


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_at_any_moment_measures_the_baselines_once(make_run: MakeRun, moment: str) -> None:
    """The coordinator is killed around the work and its result, also in its very last rounds."""
    run = make_run(rules=ALL, budget=3)
    run.run_to(2)
    text = f"coordinator.{moment}=raise"
    failpoints.arm("coordinator", run.run_dir, {failpoints.FAILPOINTS_VARIABLE: text})
    run.run_out()
    assert (run.run_dir / "failpoints").exists()
    assert ("finished", 50.0) == (run.status, reference(run).compile_us)
    assert 1 == baseline_leases(run).count("done")
    assert [] == run.differences()


def test_a_run_that_lacks_its_baselines_alone_is_resumed_for_them(make_run: MakeRun) -> None:
    """A run waits while no evaluator answers; stopped then, its next start measures them."""
    run = make_run(rules=ALL, budget=2)
    run.socket.unanswered = (messages.MeasureBaselines,)
    run.run_to(2)
    run.rounds(20)
    assert run.status is None
    run.coordinator.drain()
    run.rounds()
    assert ["preempted"] == baseline_leases(run)  # a drain does not wait for it
    run.crash()
    run.start(supervisor="another")
    run.run_out()
    assert ("finished", 50.0) == (run.status, reference(run).compile_us)


def test_baselines_that_can_not_be_measured_end_with_the_reason(make_run: MakeRun) -> None:
    """Work that takes two evaluators with it is not leased again, and the run ends."""
    run = make_run(rules=ALL, budget=2)
    run.socket.unanswered = (messages.MeasureBaselines,)
    for number in range(2):
        run.until(lambda: any(work == "t/0/baselines" for work in run.coordinator.scheduler.grants))
        grant = run.coordinator.scheduler.grants["t/0/baselines"]
        run.socket.deliver(grant.incarnation, messages.CandidateRunning(lease=grant.lease))
        run.rounds(2)
        ended = run.coordinator.scheduler.peer_lost(grant.incarnation)
        run.coordinator.dispatcher.leases_ended(ended)
        run.socket.hello(Role.EVALUATOR, f"evaluator+again{number}")
    run.run_out()
    assert "finished" == run.status
    assert "torch.compile was not measured: 2 evaluators were lost" in reference(run).baselines_note


def test_a_request_shows_the_baselines_that_were_known_at_its_decision(make_run: MakeRun) -> None:
    """An agent that is leased the same work again gets the same request: its reply is paid for."""
    run = make_run(rules=ALL, budget=2)
    run.run_out()
    coordinator = run.coordinator
    coordinator.store.set_baselines("t", replace(reference(run), baselines_decided=2))
    work = WorkMessages(
        coordinator.store, coordinator.activity, coordinator.directives,
        {task.name: task for task, _, _ in coordinator.store.tasks()},
    )  # fmt: skip
    shown = {}
    for order, number, stage in run.rows("SELECT id, number, stage FROM decision ORDER BY id"):
        if stage == Stage.PLAN:
            attempt = Attempt(number=number, parent=0, repair=False, stage=Stage.PLAN)
            lease = Lease(work=f"t/{number}/plan", epoch=1)
            message = work.message_for(lease, OfferWork(Stage.PLAN, attempt))
            assert isinstance(message, messages.MakePlan)
            shown[order] = message.reference.compile_us
    assert {order: None if order <= 2 else 50.0 for order in shown} == shown
    assert {None, 50.0} == set(shown.values())
