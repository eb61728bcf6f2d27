"""Work that comes back undone: it is leased again, but only so often after failed tries."""

from __future__ import annotations

from actors.coordinator.scheduling.retry_policy import MAX_FAILED_TRIES
from actors.coordinator.scheduling.scheduler import Scheduler
from protocol.messages import Hello
from protocol.values import Role

WORK = "t/1/evaluate"


def make_scheduler() -> Scheduler:
    scheduler = Scheduler(lease_s=15.0, epoch=0)
    scheduler.enqueue(WORK, Role.EVALUATOR)
    scheduler.connect_peer(
        Hello(role=Role.EVALUATOR, slot="e", incarnation="e", pid=1, credit=1), 0.0
    )
    return scheduler


def hand_back(scheduler: Scheduler, *, reference_failed: bool) -> bool:
    """Lease the work and have it returned; return whether it is exhausted."""
    (granted,) = scheduler.grant_leases(0.0)
    lease_end = scheduler.hand_back(granted.lease, "e", reference_failed=reference_failed)
    assert lease_end is not None
    return lease_end.exhausted


def test_draining_and_quarantined_devices_are_not_charged() -> None:
    """Work that was handed back without a try is leased again, however often."""
    scheduler = make_scheduler()
    assert not any(hand_back(scheduler, reference_failed=False) for _ in range(5))


def test_a_reference_that_fails_on_a_healthy_device_is_given_up() -> None:
    """A reference that always dies does not end evaluators for ever: the run goes on without it."""
    scheduler = make_scheduler()
    assert [False, True] == [
        hand_back(scheduler, reference_failed=True) for _ in range(MAX_FAILED_TRIES)
    ]
    assert [] == scheduler.grant_leases(0.0)
    assert 0 == scheduler.waiting_count()


def test_a_result_clears_the_failed_tries() -> None:
    """After a failed try and then a verdict, the next work of that name begins without charges."""
    scheduler = make_scheduler()
    assert not hand_back(scheduler, reference_failed=True)
    (granted,) = scheduler.grant_leases(0.0)
    assert scheduler.settle_result(granted.lease, "e") is granted
    scheduler.enqueue(WORK, Role.EVALUATOR)
    assert not hand_back(scheduler, reference_failed=True)
