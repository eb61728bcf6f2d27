"""Background work: for idle peers only, and it gives way; the run's baselines are such work."""

from __future__ import annotations

from actors.coordinator.scheduling.leases import GrantedLease
from actors.coordinator.scheduling.scheduler import IDLE_S, Scheduler
from actors.coordinator.scheduling.work_queue import Placement
from protocol.messages import Hello
from protocol.values import Device, Role

BACKGROUND = Placement(is_background=True)
BASELINES = "t/0/baselines"


def join(scheduler: Scheduler, name: str, *, credit: int = 1, minor: int = 2) -> None:
    hello = Hello(
        role=Role.EVALUATOR, slot=name, incarnation=name, pid=1, credit=credit, minor=minor,
        device=Device(fingerprint="card"),
    )  # fmt: skip
    scheduler.connect_peer(hello, 0.0)


def scheduler_with(*peers: str, credit: int = 1) -> Scheduler:
    """Return a scheduler with these evaluators and one piece of background work."""
    scheduler = Scheduler(lease_s=15.0, epoch=0)
    for name in peers:
        join(scheduler, name, credit=credit)
    scheduler.enqueue(BASELINES, Role.EVALUATOR, BACKGROUND)
    return scheduler


def holders(granted: list[GrantedLease]) -> list[tuple[str, str]]:
    return [(grant.work, grant.incarnation) for grant in granted]


def test_background_work_waits_for_all_other_work() -> None:
    """Candidates go first, in whatever order the work came; a peer that holds one gets no more."""
    scheduler = scheduler_with("a", credit=2)
    scheduler.enqueue("t/1/evaluate", Role.EVALUATOR)
    (granted,) = scheduler.grant_leases(0.0)
    assert "t/1/evaluate" == granted.work
    assert [] == scheduler.grant_leases(100.0)
    scheduler.settle_result(granted.lease, "a")
    assert [(BASELINES, "a")] == holders(scheduler.grant_leases(100.0))


def test_background_work_begins_at_once_when_nothing_else_is_left() -> None:
    """While agents work a candidate may come at any moment: then a peer has to be idle first."""
    assert [(BASELINES, "a")] == holders(scheduler_with("a").grant_leases(0.0))
    scheduler = scheduler_with("a")
    scheduler.enqueue("t/1/plan", Role.PLANNER)
    assert [] == scheduler.grant_leases(0.0)
    assert [] == scheduler.grant_leases(0.9 * IDLE_S)
    assert [(BASELINES, "a")] == holders(scheduler.grant_leases(IDLE_S))


def test_other_work_ends_the_lease_of_background_work_and_loses_none() -> None:
    """The candidate is leased in the same round, also to a peer with credit for one lease."""
    scheduler = scheduler_with("a")
    (first,) = scheduler.grant_leases(0.0)
    scheduler.candidate_running(first.lease, "a")
    scheduler.enqueue("t/1/evaluate", Role.EVALUATOR)
    (granted,) = scheduler.grant_leases(1.0)
    (end,) = scheduler.take_preempted()
    assert (first, "preempted", False) == (end.granted, end.outcome, end.exhausted)
    assert "t/1/evaluate" == granted.work
    assert scheduler.settle_result(first.lease, "a") is None  # it came too late
    assert [] == scheduler.take_preempted()
    scheduler.settle_result(granted.lease, "a")
    (again,) = scheduler.grant_leases(2.0)
    assert (BASELINES, True) == (again.work, again.epoch > first.epoch)
    assert scheduler.settle_result(again.lease, "a") is again


def test_an_idle_peer_takes_the_candidate_before_one_with_background_work() -> None:
    """With two evaluators the baselines go on beside the candidates."""
    scheduler = scheduler_with("a", "b")
    assert [(BASELINES, "a")] == holders(scheduler.grant_leases(0.0))
    scheduler.enqueue("t/1/evaluate", Role.EVALUATOR)
    assert [("t/1/evaluate", "b")] == holders(scheduler.grant_leases(1.0))
    assert [] == scheduler.take_preempted()


def test_a_peer_of_an_older_protocol_gets_no_background_work() -> None:
    """It would not understand the message, and the work would never end."""
    scheduler = scheduler_with()
    join(scheduler, "old", minor=1)
    assert [] == scheduler.grant_leases(100.0)
    join(scheduler, "new")
    assert [(BASELINES, "new")] == holders(scheduler.grant_leases(100.0))


def test_background_work_that_is_claimed_after_a_restart_still_gives_way() -> None:
    """The next coordinator knows from the store what the lease is for."""
    (granted,) = scheduler_with("a").grant_leases(0.0)
    scheduler = Scheduler(lease_s=15.0, epoch=5)
    scheduler.restore([granted], {})
    scheduler.enqueue(BASELINES, Role.EVALUATOR, BACKGROUND)
    hello = Hello(
        role=Role.EVALUATOR, slot="a", incarnation="a", pid=1, held_leases=(granted.lease,)
    )
    assert ([], []) == scheduler.connect_peer(hello, 1.0)
    scheduler.enqueue("t/1/evaluate", Role.EVALUATOR)
    assert [("t/1/evaluate", "a")] == holders(scheduler.grant_leases(1.0))
    assert [BASELINES] == [end.granted.work for end in scheduler.take_preempted()]


def test_a_run_with_background_work_left_is_not_idle() -> None:
    """`--until-idle` measures the baselines where there is an evaluator, and only there."""
    scheduler = scheduler_with()
    assert not scheduler.is_idle([Role.EVALUATOR])
    assert scheduler.is_idle([Role.PLANNER])


def test_confirmations_come_before_baselines() -> None:
    """A run that is stopped has confirmed winners rather than torch.compile's times."""
    scheduler = Scheduler(lease_s=15.0, epoch=0)
    join(scheduler, "a")
    scheduler.enqueue(BASELINES, Role.EVALUATOR, Placement(is_background=True, is_last=True))
    scheduler.enqueue("u/1/confirm", Role.EVALUATOR, BACKGROUND)
    assert 2 == scheduler.waiting_count()
    (granted,) = scheduler.grant_leases(0.0)
    assert "u/1/confirm" == granted.work
    scheduler.settle_result(granted.lease, "a")
    assert [(BASELINES, "a")] == holders(scheduler.grant_leases(0.0))


def test_a_start_for_first_looks_leaves_background_work() -> None:
    """`--first-looks`: an evaluator without other work is idle, and so is the run."""
    scheduler = Scheduler(lease_s=15.0, epoch=0, has_background=False)
    join(scheduler, "a")
    scheduler.enqueue(BASELINES, Role.EVALUATOR, BACKGROUND)
    assert [] == scheduler.grant_leases(0.0)
    assert scheduler.is_idle([Role.EVALUATOR])
    scheduler.enqueue("t/1/evaluate", Role.EVALUATOR)
    assert not scheduler.is_idle([Role.EVALUATOR])
    assert [("t/1/evaluate", "a")] == holders(scheduler.grant_leases(1.0))
