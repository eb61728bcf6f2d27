"""Leases: one holder at a time, nothing lost, only candidates that ran are charged."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from actors.coordinator.charges import CUTS, LOSSES
from actors.coordinator.fleet import Fleet
from actors.coordinator.grants import Grant
from protocol.messages import Beat, Hello, Lease
from protocol.values import Role

LEASE_S = 15.0


def hello(name: str, slot: str = "evaluator-0", holds: tuple[Lease, ...] = ()) -> Hello:
    return Hello(role=Role.EVALUATOR, slot=slot, incarnation=name, pid=1, holds=holds)


def fleet_with(*works: str) -> Fleet:
    fleet = Fleet(lease_s=LEASE_S, epoch=0)
    for work in works:
        fleet.offer(work, Role.EVALUATOR)
    return fleet


def test_work_waits_for_credit() -> None:
    """A worker gets as many leases as it has said it will hold, in the order of the offers."""
    fleet = fleet_with("t/1/evaluate", "t/2/evaluate")
    fleet.hello(hello("a"), 0.0)

    assert ["t/1/evaluate"] == [grant.work for grant in fleet.grant(0.0)]
    assert [] == fleet.grant(0.0)
    assert fleet.waiting() == 1


def test_the_least_loaded_worker_is_asked_first() -> None:
    """Work spreads over a fleet before anybody gets a second piece; the eldest goes first."""
    fleet = Fleet(lease_s=LEASE_S, epoch=0)
    for name, slot in (("a", "evaluator-0"), ("b", "evaluator-1")):
        peer = Hello(role=Role.EVALUATOR, slot=slot, incarnation=name, pid=1, credit=2)
        fleet.hello(peer, 0.0)
    for number in range(5):
        fleet.offer(f"t/{number}/evaluate", Role.EVALUATOR)

    grants = fleet.grant(0.0)

    assert ["a", "b", "a", "b"] == [grant.incarnation for grant in grants]
    assert fleet.settle(grants[1].lease, "b") is grants[1]
    assert ["b"] == [grant.incarnation for grant in fleet.grant(0.0)]


def test_a_result_counts_once_and_only_from_the_holder() -> None:
    """A second copy, a stranger's and an old epoch's result are not taken."""
    fleet = fleet_with("t/1/evaluate")
    fleet.hello(hello("a"), 0.0)
    (grant,) = fleet.grant(0.0)

    assert fleet.settle(grant.lease, "b") is None
    assert fleet.settle(Lease(work=grant.work, epoch=grant.epoch - 1), "a") is None
    assert fleet.settle(grant.lease, "a") is grant
    assert fleet.settle(grant.lease, "a") is None


def test_who_falls_silent_is_missed_until_it_or_its_successor_speaks() -> None:
    """Also a peer that only an earlier coordinator knew; a dead one is not missed."""
    fleet = fleet_with()
    fleet.hello(hello("a", "evaluator-0"), 0.0)
    fleet.expect("evaluator-1", Role.EVALUATOR, "b", 0.0)
    fleet.expect("evaluator-2", Role.EVALUATOR, "c", 0.0)
    fleet.hello(hello("c", "evaluator-2"), LEASE_S - 1)

    fleet.expire(LEASE_S + 1)
    assert {"a", "b"} == set(fleet.silent)
    fleet.hello(hello("successor", "evaluator-0"), LEASE_S + 2)
    assert {"b"} == set(fleet.silent)
    fleet.lost("b")
    fleet.expire(LEASE_S + 5)
    assert set() == set(fleet.silent)


def test_a_device_that_is_not_well_gets_no_lease_for_a_while() -> None:
    """The work that it handed back goes to another, or waits."""
    fleet = fleet_with("t/1/evaluate")
    fleet.hello(hello("a"), 0.0)
    (grant,) = fleet.grant(0.0)
    fleet.returned(grant.lease, "a")
    fleet.rest("a", 10.0)

    assert [] == fleet.grant(9.0)
    assert ["a"] == [grant.incarnation for grant in fleet.grant(10.0)]


def test_a_late_result_after_the_lease_expired_is_not_taken() -> None:
    """Stopped past its lease, then continued: somebody else's result counts, once."""
    fleet = fleet_with("t/1/evaluate")
    fleet.hello(hello("a"), 0.0)
    (old,) = fleet.grant(0.0)
    (ended,) = fleet.expire(LEASE_S + 1)
    fleet.hello(hello("b", "evaluator-1"), LEASE_S + 1)
    (new,) = fleet.grant(LEASE_S + 1)

    assert ended.outcome == "expired"
    assert fleet.settle(old.lease, "a") is None
    assert fleet.settle(new.lease, "b") is new


def test_a_replaced_worker_gives_its_work_back_at_once() -> None:
    """A new incarnation in the slot proves that the old one is dead: no waiting for the lease."""
    fleet = fleet_with("t/1/evaluate")
    fleet.hello(hello("a"), 0.0)
    fleet.grant(0.0)
    _, ended = fleet.hello(hello("b"), 1.0)

    assert ["lost"] == [end.outcome for end in ended]
    assert ["b"] == [grant.incarnation for grant in fleet.grant(1.0)]


def test_two_losses_while_the_candidate_ran_end_it() -> None:
    """Charged twice: the candidate is not leased a third time."""
    fleet = fleet_with("t/1/evaluate")
    ended = []
    for name in ("a", "b"):
        fleet.hello(hello(name), 0.0)
        (grant,) = fleet.grant(0.0)
        fleet.running(grant.lease, name)
        ended += fleet.lost(name)

    assert [False, True] == [end.exhausted for end in ended]
    fleet.hello(hello("c"), 0.0)
    assert [] == fleet.grant(0.0)


def test_losses_before_the_candidate_ran_are_never_charged() -> None:
    """Leased or building when the evaluator died: leased again, however often."""
    fleet = fleet_with("t/1/evaluate")
    for name in "abcdef":
        fleet.hello(hello(name), 0.0)
        assert len(fleet.grant(0.0)) == 1
        (end,) = fleet.lost(name)
        assert not end.exhausted


def test_a_lease_that_never_arrived_is_missed_by_the_second_heartbeat() -> None:
    """The first heartbeat may have crossed the lease on the wire; the second has not."""
    fleet = fleet_with("t/1/evaluate")
    fleet.hello(hello("a"), 0.0)
    fleet.grant(0.0)

    assert ([], []) == fleet.beat("a", Beat(), 1.0)
    _, (end,) = fleet.beat("a", Beat(), 6.0)
    assert end.outcome == "missed"


def test_a_peer_that_was_only_cut_off_takes_its_blame_back() -> None:
    """Expired while candidate code ran, then heard of again: not lost, so not charged. Not for
    ever: a candidate that silences whoever runs it is charged in the end."""
    fleet = fleet_with("t/1/evaluate")
    now, outcomes = 0.0, []
    for _ in range(10):
        fleet.hello(hello("a"), now)
        granted = fleet.grant(now)
        if not granted:
            break
        fleet.running(granted[0].lease, "a")
        now += LEASE_S + 1
        outcomes += [(end.outcome, end.exhausted) for end in fleet.expire(now)]
        outcomes += [(end.outcome, end.exhausted) for end in fleet.hello(hello("a"), now)[1]]
    assert [("expired", False), ("silent", False)] * 3 == outcomes[:6]
    assert [("expired", False), ("expired", True)] == outcomes[6:]


def open_grant() -> Grant:
    return Grant(
        work="t/1/evaluate",
        role=Role.EVALUATOR,
        slot="evaluator-0",
        incarnation="a",
        epoch=7,
        expires=15.0,
    )


def test_after_a_power_cut_the_new_holder_of_the_slot_gets_the_work_at_once() -> None:
    """Coordinator and worker both died: the slot's new incarnation proves the old one dead."""
    fleet = Fleet(lease_s=LEASE_S, epoch=7)
    fleet.restore([open_grant()], {})
    fleet.offer("t/1/evaluate", Role.EVALUATOR)
    _, ended = fleet.hello(hello("b"), 0.1)

    assert ["lost"] == [end.outcome for end in ended]
    assert ["b"] == [grant.incarnation for grant in fleet.grant(0.1)]


def test_a_machine_that_falls_away_is_not_the_candidates_doing() -> None:
    """Its supervisor is another one: what ran there is offered again, uncharged. Not for ever: a
    candidate that takes the machine with it each time is charged in the end."""
    fleet = fleet_with("t/1/evaluate")
    ended = []
    for number in range(CUTS + LOSSES):
        fleet.hello(hello(f"w{number}"), 0.0)
        (grant,) = fleet.grant(0.0)
        fleet.running(grant.lease, f"w{number}")
        ended += fleet.machine_lost("")

    outcomes = [(end.outcome, end.exhausted) for end in ended]
    assert [("cut", False)] * CUTS + [("lost", False), ("lost", True)] == outcomes


def test_a_guests_next_supervisor_takes_back_what_its_silence_was_charged() -> None:
    """The joined machine was killed under a candidate and came again: nobody's evaluator crashed;
    another machine's leases stay as they are."""
    fleet = fleet_with("t/1/evaluate", "t/2/evaluate")

    def supervisor(name: str) -> Hello:
        return Hello(
            role=Role.SUPERVISOR, slot="supervisor@far-1.aa", incarnation=name, pid=1, credit=0
        )

    fleet.hello(supervisor("s1"), 0.0)
    fleet.hello(hello("here"), 0.0)
    fleet.hello(hello("w1", "evaluator-0@far-1.aa"), 0.0)
    here, far = fleet.grant(0.0)
    for grant in (here, far):
        fleet.running(grant.lease, grant.incarnation)
    fleet.beat("here", Beat(holds=(here.lease,)), LEASE_S)
    (expired,) = fleet.expire(LEASE_S + 1)
    _, ended = fleet.hello(supervisor("s2"), LEASE_S + 2)

    assert ("expired", "cut") == (expired.outcome, ended[0].outcome)
    assert [far.epoch] == [end.grant.epoch for end in ended]
    fleet.hello(hello("w2", "evaluator-0@far-1.aa"), LEASE_S + 2)
    (again,) = fleet.grant(LEASE_S + 2)
    fleet.running(again.lease, "w2")
    assert [False] == [end.exhausted for end in fleet.lost("w2")]
    assert fleet.settle(here.lease, "here") is here


def test_a_restarted_coordinator_lets_the_holder_keep_its_lease() -> None:
    """Open leases are taken up as they were; whoever holds one goes on, and is not charged."""
    fleet = Fleet(lease_s=LEASE_S, epoch=7)
    grant = open_grant()
    fleet.restore([grant], {})
    fleet.offer("t/1/evaluate", Role.EVALUATOR)
    revoked, ended = fleet.hello(hello("a", holds=(grant.lease,)), 1.0)

    assert ([], []) == (revoked, ended)
    assert [] == fleet.grant(1.0)
    assert fleet.settle(grant.lease, "a") is grant


class FleetMachine(RuleBasedStateMachine):
    """Any order of offers, hellos, beats, losses, expiries and results."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet(lease_s=LEASE_S, epoch=0)
        self.now = 0.0
        self.offered: set[str] = set()
        self.done: list[str] = []
        self.exhausted: list[str] = []
        self.epochs: list[int] = []
        self.holds: dict[str, set[Lease]] = {}
        self.count = 0

    def note(self, ended: list) -> None:
        self.exhausted += [end.grant.work for end in ended if end.exhausted]

    def take(self) -> None:
        for grant in self.fleet.grant(self.now):
            self.epochs.append(grant.epoch)
            self.holds[grant.incarnation].add(grant.lease)
        if self.fleet.waiting():
            assert all(peer.credit <= len(peer.leases) for peer in self.fleet.peers.values())

    @rule()
    def offer(self) -> None:
        self.count += 1
        work = f"t/{self.count}/evaluate"
        self.offered.add(work)
        self.fleet.offer(work, Role.EVALUATOR)
        self.take()

    @rule(slot=st.integers(0, 2))
    def start(self, slot: int) -> None:
        self.count += 1
        name = f"w{self.count}"
        self.holds[name] = set()
        self.note(self.fleet.hello(hello(name, f"evaluator-{slot}"), self.now)[1])
        self.take()

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        held = [(name, lease) for name in sorted(self.holds) for lease in self.holds[name]]
        if held:
            name, lease = data.draw(st.sampled_from(sorted(held, key=str)))
            self.holds[name].discard(lease)
            if self.fleet.settle(lease, name):
                self.done.append(lease.work)
            self.take()

    @rule(data=st.data(), running=st.booleans())
    def lose(self, data: st.DataObject, running: bool) -> None:
        if self.fleet.peers:
            name = data.draw(st.sampled_from(sorted(self.fleet.peers)))
            if running:
                for lease in self.holds[name]:
                    self.fleet.running(lease, name)
            self.note(self.fleet.lost(name))
            self.take()

    @rule()
    def fall_away(self) -> None:
        self.note(self.fleet.machine_lost(""))
        self.take()

    @rule(seconds=st.floats(0.1, 20.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.note(self.fleet.expire(self.now))

    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        if self.fleet.peers:
            name = data.draw(st.sampled_from(sorted(self.fleet.peers)))
            holds = tuple(sorted(self.holds[name], key=str))
            _, ended = self.fleet.beat(name, Beat(holds=holds), self.now)
            self.note(ended)

    @invariant()
    def all_work_is_somewhere_exactly_once(self) -> None:
        ended = self.done + self.exhausted
        assert len(set(ended)) == len(ended)
        assert len(self.offered) == self.fleet.waiting() + len(self.fleet.grants) + len(ended)

    @invariant()
    def epochs_only_grow(self) -> None:
        assert sorted(set(self.epochs)) == self.epochs


FleetMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
test_fleet_machine = FleetMachine.TestCase
