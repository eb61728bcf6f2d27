"""Devices: a task stays with the kind that measured it; local devices confirm winners."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.coordinator.scheduling.scheduler import Scheduler
from actors.coordinator.scheduling.work_queue import KIND_MEMORY_S, Placement
from actors.coordinator.scheduling.workers import LOCAL_PEER, PeerIdentity
from protocol.messages import Heartbeat, Hello
from protocol.settings import Settings
from protocol.values import Device, Role

GUEST = PeerIdentity(ticket="5c2e1a", role=Role.EVALUATOR)


def join(
    scheduler: Scheduler,
    name: str,
    kind: str,
    now: float = 0.0,
    identity: PeerIdentity = LOCAL_PEER,
    credit: int = 1,
) -> None:
    hello = Hello(
        role=Role.EVALUATOR, slot=name, incarnation=name, pid=1, credit=credit,
        device=Device(fingerprint=kind),
    )  # fmt: skip
    scheduler.connect_peer(hello, now, identity)


def new_holders(scheduler: Scheduler, now: float) -> list[str]:
    return [grant.incarnation for grant in scheduler.grant_leases(now)]


def test_a_task_waits_for_its_own_kind_of_device() -> None:
    """An idle device of another kind does not get its work; one of its own kind does, at once."""
    scheduler = Scheduler(lease_s=15.0, epoch=0)
    join(scheduler, "other", "B")
    scheduler.enqueue("t/1/evaluate", Role.EVALUATOR, Placement(kind="A"))
    assert [] == new_holders(scheduler, 1.0)
    join(scheduler, "own", "A", 2.0)
    assert ["own"] == new_holders(scheduler, 2.0)


def test_a_run_of_one_device_does_not_wait_for_another() -> None:
    """A run that goes on with another card (or driver) would pause for a minute at each start."""
    scheduler = Scheduler(lease_s=15.0, epoch=0, kind_memory_s=0.0)
    join(scheduler, "other", "B")
    scheduler.enqueue("t/1/evaluate", Role.EVALUATOR, Placement(kind="A"))
    assert [] == new_holders(scheduler, 1.0)  # it is looked for first
    assert ["other"] == new_holders(scheduler, 1.1)
    assert not Settings(evaluators=1).may_have_other_devices
    assert Settings(evaluators=2).may_have_other_devices
    assert Settings(evaluators=0, listen="tcp://10.0.0.1:5555").may_have_other_devices


def test_work_for_an_absent_kind_does_not_stop_other_work() -> None:
    """A task that waits for a device does not block the tasks behind it."""
    scheduler = Scheduler(lease_s=15.0, epoch=0)
    join(scheduler, "b", "B")
    scheduler.enqueue("first/1/evaluate", Role.EVALUATOR, Placement(kind="A"))
    scheduler.enqueue("second/1/evaluate", Role.EVALUATOR, Placement(kind="B"))
    assert ["second/1/evaluate"] == [grant.work for grant in scheduler.grant_leases(0.0)]


def test_work_goes_to_any_device_when_its_kind_stays_away() -> None:
    """After a minute without a device of its kind, another kind gets the work, and not before.

    A busy device of its kind counts as present; one without credit does not.
    """
    scheduler = Scheduler(lease_s=1000.0, epoch=0)
    join(scheduler, "own", "A", credit=1)
    for number in (1, 2):
        scheduler.enqueue(f"t/{number}/evaluate", Role.EVALUATOR, Placement(kind="A"))
    assert ["own"] == new_holders(scheduler, 0.0)
    join(scheduler, "other", "B")
    for now in range(0, 200, 10):
        scheduler.renew_leases(
            "own", Heartbeat(held_leases=tuple(g.lease for g in scheduler.held_by("own"))), now
        )
        assert [] == new_holders(scheduler, now)
    last = 190.0
    scheduler.renew_leases(
        "own",
        Heartbeat(credit=0, held_leases=tuple(g.lease for g in scheduler.held_by("own"))),
        last + 1,
    )
    assert [] == new_holders(scheduler, last + KIND_MEMORY_S)
    assert ["other"] == new_holders(scheduler, last + KIND_MEMORY_S + 1)


def test_lost_work_keeps_its_placement() -> None:
    """After a lease without a result, the work goes to the same kind of device."""
    scheduler = Scheduler(lease_s=15.0, epoch=0)
    join(scheduler, "a", "A")
    scheduler.enqueue("t/1/evaluate", Role.EVALUATOR, Placement(kind="A"))
    assert ["a"] == new_holders(scheduler, 0.0)
    scheduler.peer_lost("a")
    join(scheduler, "b", "B")
    assert [] == new_holders(scheduler, 1.0)


def test_a_winner_is_confirmed_on_the_runs_own_machine() -> None:
    """A guest confirms it only when no local evaluator can."""
    scheduler = Scheduler(lease_s=15.0, epoch=0)
    join(scheduler, "guest", "A", identity=GUEST)
    join(scheduler, "local", "A")
    scheduler.enqueue("t/1/evaluate", Role.EVALUATOR, Placement(kind="A"))
    scheduler.enqueue("t/2/evaluate", Role.EVALUATOR, Placement(kind="A"))
    assert {"guest", "local"} == set(new_holders(scheduler, 0.0))
    scheduler.enqueue("u/1/confirm", Role.EVALUATOR, Placement(kind="A", trusted=True))
    (held,) = scheduler.held_by("guest")
    scheduler.settle_result(held.lease, "guest")
    assert [] == new_holders(scheduler, 0.0)
    scheduler.peer_lost("local")
    scheduler.enqueue("t/3/evaluate", Role.EVALUATOR, Placement(kind="A"))
    works = {grant.work for _ in range(3) for grant in settle_all(scheduler)}
    assert "u/1/confirm" in works


@given(
    want=st.sampled_from(["", "A", "B"]),
    local=st.lists(st.tuples(st.sampled_from(["A", "B"]), st.integers(0, 1)), max_size=3),
    waited=st.sampled_from([0.0, KIND_MEMORY_S + 1]),
)
def test_a_doubted_guest_result_is_evaluated_again_on_the_local_machine(
    want: str, local: list[tuple[str, int]], waited: float
) -> None:
    """Work that is taken from a guest goes to a local device, never back to that guest.

    Where no local device can have the work, it stays with the guest: otherwise it would go back and
    forth for ever.
    """
    scheduler = Scheduler(lease_s=1000.0, epoch=0)
    scheduler.enqueue("t/0/measure", Role.EVALUATOR, Placement(kind=want))
    join(scheduler, "other", "C", credit=int(want != ""))  # the work begins to wait for its kind
    assert [] == new_holders(scheduler, 0.0)
    scheduler.peer_lost("other")
    join(scheduler, "guest", want or "A", 0.0, identity=GUEST)
    (granted,) = scheduler.grant_leases(waited)
    for number, (kind, credit) in enumerate(local):
        join(scheduler, f"local{number}", kind, 0.0, credit=credit)
    able = [kind for kind, credit in local if credit and (kind == want or not want or waited)]
    lease_end = scheduler.requeue_for_local(granted.lease, "guest", waited)
    assert bool(able) == (lease_end is not None)
    if lease_end is None:
        assert scheduler.has_lease("guest", granted.lease)
    else:
        assert not lease_end.exhausted
        (again,) = scheduler.grant_leases(waited)
        assert again.incarnation.startswith("local")
        assert scheduler.requeue_for_local(again.lease, again.incarnation, waited) is None


def settle_all(scheduler: Scheduler) -> list:
    granted = scheduler.grant_leases(0.0)
    for grant in granted:
        scheduler.settle_result(grant.lease, grant.incarnation)
    return granted


def test_a_dismissed_peer_causes_no_charge() -> None:
    """A refused peer loses its leases; the candidate that ran there is not charged."""
    scheduler = Scheduler(lease_s=15.0, epoch=0)
    for number in range(3):
        join(scheduler, f"refused{number}", "A", identity=GUEST)
        if not number:
            scheduler.enqueue("t/1/evaluate", Role.EVALUATOR)
        (granted,) = scheduler.grant_leases(0.0)
        scheduler.candidate_running(granted.lease, granted.incarnation)
        (end,) = scheduler.dismiss_peer(granted.incarnation)
        assert (False, "dismissed") == (end.exhausted, end.outcome)
    assert scheduler.waiting_count() == 1


def test_idle_means_that_no_local_role_can_go_on() -> None:
    """Work for absent roles does not keep a run up; leased work and work for local roles do."""
    scheduler = Scheduler(lease_s=15.0, epoch=0)
    here = [Role.PLANNER, Role.CODER]
    assert scheduler.is_idle(here)
    scheduler.enqueue("t/1/evaluate", Role.EVALUATOR)
    assert scheduler.is_idle(here)
    scheduler.enqueue("t/2/plan", Role.PLANNER)
    assert not scheduler.is_idle(here)
    join(scheduler, "guest", "A", identity=GUEST)
    assert not scheduler.is_idle([])
    scheduler.grant_leases(0.0)
    scheduler.peer_lost("guest")
    assert scheduler.is_idle([])


kinds = st.sampled_from(["A", "B", "C"])


@given(
    works=st.lists(kinds, max_size=8),
    peers=st.lists(st.tuples(kinds, st.integers(0, 3), st.booleans()), max_size=6),
)
def test_every_grant_fits_and_nothing_that_fits_waits(
    works: list[str], peers: list[tuple[str, int, bool]]
) -> None:
    """Compared with a simple model: as much work of each kind as its devices' credit allows."""
    scheduler = Scheduler(lease_s=15.0, epoch=0)
    for number, kind in enumerate(works):
        # A task has one kind of device.
        scheduler.enqueue(f"{kind}/{number}/evaluate", Role.EVALUATOR, Placement(kind=kind))
    for number, (kind, credit, guest) in enumerate(peers):
        join(scheduler, str(number), kind, credit=credit, identity=GUEST if guest else LOCAL_PEER)
    granted = scheduler.grant_leases(0.0)
    for grant in granted:
        assert grant.work.partition("/")[0] == scheduler.peers[grant.incarnation].kind
    for kind in "ABC":
        credits = sum(credit for of, credit, _ in peers if of == kind)
        grants = sum(grant.work.startswith(kind) for grant in granted)
        assert grants == min(works.count(kind), credits)
    assert scheduler.waiting_count() == len(works) - len(granted)
