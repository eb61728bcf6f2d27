"""Devices: a task stays with the kind that measured it; the last look is taken at home."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.coordinator.fleet import Fleet
from actors.coordinator.grants import Want
from actors.coordinator.offers import KIND_S
from actors.coordinator.origin import LOCAL, Origin
from protocol.messages import Beat, Hello
from protocol.values import Device, Role

GUEST = Origin(ticket="5c2e1a", role=Role.EVALUATOR)


def join(
    fleet: Fleet, name: str, kind: str, now: float = 0.0, origin: Origin = LOCAL, credit: int = 1
) -> None:
    hello = Hello(
        role=Role.EVALUATOR, slot=name, incarnation=name, pid=1, credit=credit,
        device=Device(fingerprint=kind),
    )  # fmt: skip
    fleet.hello(hello, now, origin)


def given_to(fleet: Fleet, now: float) -> list[str]:
    return [grant.incarnation for grant in fleet.grant(now)]


def test_a_task_waits_for_its_own_kind_of_device() -> None:
    """Another device does not get it, however idle; its own kind gets it at once."""
    fleet = Fleet(lease_s=15.0, epoch=0)
    join(fleet, "other", "B")
    fleet.offer("t/1/evaluate", Role.EVALUATOR, Want(kind="A"))
    assert [] == given_to(fleet, 1.0)
    join(fleet, "own", "A", 2.0)
    assert ["own"] == given_to(fleet, 2.0)


def test_work_for_an_absent_kind_stops_nobody_elses() -> None:
    """Each task finds its devices; one that waits is no cork."""
    fleet = Fleet(lease_s=15.0, epoch=0)
    join(fleet, "b", "B")
    fleet.offer("first/1/evaluate", Role.EVALUATOR, Want(kind="A"))
    fleet.offer("second/1/evaluate", Role.EVALUATOR, Want(kind="B"))
    assert ["second/1/evaluate"] == [grant.work for grant in fleet.grant(0.0)]


def test_when_its_kind_stays_away_any_device_may_have_it() -> None:
    """After a minute without such a device speed-ups are used; no sooner, and not while one lives,
    busy or not; a device that is put aside does not count."""
    fleet = Fleet(lease_s=1000.0, epoch=0)
    join(fleet, "own", "A", credit=1)
    for number in (1, 2):
        fleet.offer(f"t/{number}/evaluate", Role.EVALUATOR, Want(kind="A"))
    assert ["own"] == given_to(fleet, 0.0)
    join(fleet, "other", "B")
    for now in range(0, 200, 10):
        fleet.beat("own", Beat(holds=tuple(g.lease for g in fleet.held_by("own"))), now)
        assert [] == given_to(fleet, now)
    last = 190.0
    fleet.beat("own", Beat(credit=0, holds=tuple(g.lease for g in fleet.held_by("own"))), last + 1)
    assert [] == given_to(fleet, last + KIND_S)
    assert ["other"] == given_to(fleet, last + KIND_S + 1)


def test_what_is_lost_wants_the_same_again() -> None:
    """A lease that ends without a result is offered to the same kind of device."""
    fleet = Fleet(lease_s=15.0, epoch=0)
    join(fleet, "a", "A")
    fleet.offer("t/1/evaluate", Role.EVALUATOR, Want(kind="A"))
    assert ["a"] == given_to(fleet, 0.0)
    fleet.lost("a")
    join(fleet, "b", "B")
    assert [] == given_to(fleet, 1.0)


def test_the_last_look_is_taken_on_the_runs_own_machine() -> None:
    """A winner is confirmed at home where anybody there can do it, else by whoever is there."""
    fleet = Fleet(lease_s=15.0, epoch=0)
    join(fleet, "guest", "A", origin=GUEST)
    join(fleet, "home", "A")
    fleet.offer("t/1/evaluate", Role.EVALUATOR, Want(kind="A"))
    fleet.offer("t/2/evaluate", Role.EVALUATOR, Want(kind="A"))
    assert {"guest", "home"} == set(given_to(fleet, 0.0))
    fleet.offer("u/1/confirm", Role.EVALUATOR, Want(kind="A", trusted=True))
    (held,) = fleet.held_by("guest")
    fleet.settle(held.lease, "guest")
    assert [] == given_to(fleet, 0.0)
    fleet.lost("home")
    fleet.offer("t/3/evaluate", Role.EVALUATOR, Want(kind="A"))
    works = {grant.work for _ in range(3) for grant in settle_all(fleet)}
    assert "u/1/confirm" in works


@given(
    want=st.sampled_from(["", "A", "B"]),
    homes=st.lists(st.tuples(st.sampled_from(["A", "B"]), st.integers(0, 1)), max_size=3),
    waited=st.sampled_from([0.0, KIND_S + 1]),
)
def test_a_guest_is_doubted_where_somebody_at_home_gets_the_work_instead(
    want: str, homes: list[tuple[str, int]], waited: float
) -> None:
    """One rule for whose word is believed and for who may have the work then: what was taken from a
    guest goes to a device of our own and not to that guest again, and where none of ours could have
    it, the guest is believed, or the work would go to and fro for ever."""
    fleet = Fleet(lease_s=1000.0, epoch=0)
    fleet.offer("t/0/measure", Role.EVALUATOR, Want(kind=want))
    join(fleet, "other", "C", credit=int(want != ""))  # the work is seen to wait for its kind
    assert [] == given_to(fleet, 0.0)
    fleet.lost("other")
    join(fleet, "guest", want or "A", 0.0, origin=GUEST)
    (grant,) = fleet.grant(waited)
    for number, (kind, credit) in enumerate(homes):
        join(fleet, f"home{number}", kind, 0.0, credit=credit)
    able = [kind for kind, credit in homes if credit and (kind == want or not want or waited)]
    ended = fleet.doubted(grant.lease, "guest", waited)
    assert bool(able) == (ended is not None)
    if ended is None:
        assert fleet.holds("guest", grant.lease)
    else:
        assert not ended.exhausted
        (again,) = fleet.grant(waited)
        assert again.incarnation.startswith("home")
        assert fleet.doubted(again.lease, again.incarnation, waited) is None


def settle_all(fleet: Fleet) -> list:
    granted = fleet.grant(0.0)
    for grant in granted:
        fleet.settle(grant.lease, grant.incarnation)
    return granted


def test_a_dismissed_peer_charges_nobody() -> None:
    """Whoever lied loses its leases; the candidate that ran there is not to blame."""
    fleet = Fleet(lease_s=15.0, epoch=0)
    for number in range(3):
        join(fleet, f"liar{number}", "A", origin=GUEST)
        if not number:
            fleet.offer("t/1/evaluate", Role.EVALUATOR)
        (grant,) = fleet.grant(0.0)
        fleet.running(grant.lease, grant.incarnation)
        (end,) = fleet.dismissed(grant.incarnation)
        assert (False, "dismissed") == (end.exhausted, end.outcome)
    assert fleet.waiting() == 1


def test_idle_is_when_nobody_here_can_go_on() -> None:
    """Work that waits for absent roles is no reason to stay; held work and our own are."""
    fleet = Fleet(lease_s=15.0, epoch=0)
    here = [Role.PLANNER, Role.CODER]
    assert fleet.idle(here)
    fleet.offer("t/1/evaluate", Role.EVALUATOR)
    assert fleet.idle(here)
    fleet.offer("t/2/plan", Role.PLANNER)
    assert not fleet.idle(here)
    join(fleet, "guest", "A", origin=GUEST)
    assert not fleet.idle([])
    fleet.grant(0.0)
    fleet.lost("guest")
    assert fleet.idle([])


kinds = st.sampled_from(["A", "B", "C"])


@given(
    works=st.lists(kinds, max_size=8),
    peers=st.lists(st.tuples(kinds, st.integers(0, 3), st.booleans()), max_size=6),
)
def test_within_patience_every_grant_fits_and_nothing_that_fits_waits(
    works: list[str], peers: list[tuple[str, int, bool]]
) -> None:
    """Against the rule written the slow way: as much of each kind as its devices take."""
    fleet = Fleet(lease_s=15.0, epoch=0)
    for number, kind in enumerate(works):
        # A task has one kind of device.
        fleet.offer(f"{kind}/{number}/evaluate", Role.EVALUATOR, Want(kind=kind))
    for number, (kind, credit, guest) in enumerate(peers):
        join(fleet, str(number), kind, credit=credit, origin=GUEST if guest else LOCAL)
    granted = fleet.grant(0.0)
    for grant in granted:
        assert grant.work.partition("/")[0] == fleet.peers[grant.incarnation].kind
    for kind in "ABC":
        room = sum(credit for of, credit, _ in peers if of == kind)
        got = sum(grant.work.startswith(kind) for grant in granted)
        assert got == min(works.count(kind), room)
    assert fleet.waiting() == len(works) - len(granted)
