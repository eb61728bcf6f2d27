"""Leases: one holder at a time, no work lost, charges only for candidates that ran."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from actors.coordinator.scheduling.leases import GrantedLease
from actors.coordinator.scheduling.retry_policy import MAX_LOSSES, MAX_MACHINE_LOSSES
from actors.coordinator.scheduling.scheduler import Scheduler
from actors.coordinator.scheduling.work_queue import Placement
from protocol.messages import Heartbeat, Hello, Lease
from protocol.values import Role

LEASE_S = 15.0


def hello(name: str, slot: str = "evaluator-0", held: tuple[Lease, ...] = ()) -> Hello:
    return Hello(role=Role.EVALUATOR, slot=slot, incarnation=name, pid=1, held_leases=held)


def scheduler_with(*works: str) -> Scheduler:
    scheduler = Scheduler(lease_s=LEASE_S, epoch=0)
    for work in works:
        scheduler.enqueue(work, Role.EVALUATOR)
    return scheduler


def test_work_waits_for_credit() -> None:
    """A worker gets as many leases as its credit allows, in the order of the work."""
    scheduler = scheduler_with("t/1/evaluate", "t/2/evaluate")
    scheduler.connect_peer(hello("a"), 0.0)

    assert ["t/1/evaluate"] == [grant.work for grant in scheduler.grant_leases(0.0)]
    assert [] == scheduler.grant_leases(0.0)
    assert scheduler.waiting_count() == 1


def test_the_least_loaded_worker_gets_work_first() -> None:
    """Every worker gets one piece before any gets a second one; the oldest worker goes first."""
    scheduler = Scheduler(lease_s=LEASE_S, epoch=0)
    for name, slot in (("a", "evaluator-0"), ("b", "evaluator-1")):
        peer = Hello(role=Role.EVALUATOR, slot=slot, incarnation=name, pid=1, credit=2)
        scheduler.connect_peer(peer, 0.0)
    for number in range(5):
        scheduler.enqueue(f"t/{number}/evaluate", Role.EVALUATOR)

    grants = scheduler.grant_leases(0.0)

    assert ["a", "b", "a", "b"] == [grant.incarnation for grant in grants]
    assert scheduler.settle_result(grants[1].lease, "b") is grants[1]
    assert ["b"] == [grant.incarnation for grant in scheduler.grant_leases(0.0)]


def test_a_result_counts_once_and_only_from_the_holder() -> None:
    """A second copy, another worker's result and one of an old epoch are not taken."""
    scheduler = scheduler_with("t/1/evaluate")
    scheduler.connect_peer(hello("a"), 0.0)
    (granted,) = scheduler.grant_leases(0.0)

    assert scheduler.settle_result(granted.lease, "b") is None
    assert scheduler.settle_result(Lease(work=granted.work, epoch=granted.epoch - 1), "a") is None
    assert scheduler.settle_result(granted.lease, "a") is granted
    assert scheduler.settle_result(granted.lease, "a") is None


def test_a_process_whose_slot_was_taken_does_not_take_it_back() -> None:
    """Two machines with copies of one folder would end each other's leases without end."""
    scheduler = scheduler_with("t/1/evaluate")
    scheduler.connect_peer(hello("a"), 0.0)
    assert not scheduler.is_replaced(hello("a"))
    scheduler.connect_peer(hello("b"), 1.0)

    assert scheduler.is_replaced(hello("a"))
    assert not scheduler.is_replaced(hello("b"))
    assert not scheduler.is_replaced(hello("a", "evaluator-1"))
    scheduler.connect_peer(hello("b"), 2.0)  # the same process, after a lost connection
    scheduler.connect_peer(hello("c"), 3.0)
    assert [False, True] == [scheduler.is_replaced(hello(name)) for name in ("c", "b")]


def test_a_peer_is_silent_until_it_or_its_successor_sends_a_message() -> None:
    """Also a peer that only an earlier coordinator knew; a dead peer is not silent."""
    scheduler = scheduler_with()
    scheduler.connect_peer(hello("a", "evaluator-0"), 0.0)
    scheduler.expect_peer("evaluator-1", Role.EVALUATOR, "b", 0.0)
    scheduler.expect_peer("evaluator-2", Role.EVALUATOR, "c", 0.0)
    scheduler.connect_peer(hello("c", "evaluator-2"), LEASE_S - 1)

    scheduler.expire_leases(LEASE_S + 1)
    assert {"a", "b"} == set(scheduler.silent)
    scheduler.connect_peer(hello("successor", "evaluator-0"), LEASE_S + 2)
    assert {"b"} == set(scheduler.silent)
    scheduler.peer_lost("b")
    scheduler.expire_leases(LEASE_S + 5)
    assert set() == set(scheduler.silent)


def test_a_paused_device_gets_no_lease_for_a_while() -> None:
    """The work that it handed back goes to another device, or waits."""
    scheduler = scheduler_with("t/1/evaluate")
    scheduler.connect_peer(hello("a"), 0.0)
    (granted,) = scheduler.grant_leases(0.0)
    scheduler.hand_back(granted.lease, "a")
    scheduler.pause_peer("a", 10.0)

    assert [] == scheduler.grant_leases(9.0)
    assert ["a"] == [grant.incarnation for grant in scheduler.grant_leases(10.0)]


def test_a_late_result_after_the_lease_expired_is_not_taken() -> None:
    """A worker that was suspended past its lease: the other holder's result counts, once."""
    scheduler = scheduler_with("t/1/evaluate")
    scheduler.connect_peer(hello("a"), 0.0)
    (old,) = scheduler.grant_leases(0.0)
    (lease_end,) = scheduler.expire_leases(LEASE_S + 1)
    scheduler.connect_peer(hello("b", "evaluator-1"), LEASE_S + 1)
    (new,) = scheduler.grant_leases(LEASE_S + 1)

    assert lease_end.outcome == "expired"
    assert scheduler.settle_result(old.lease, "a") is None
    assert scheduler.settle_result(new.lease, "b") is new


def test_the_work_of_a_replaced_worker_is_leased_again_at_once() -> None:
    """A new incarnation in the slot proves that the old one is dead: its leases end at once."""
    scheduler = scheduler_with("t/1/evaluate")
    scheduler.connect_peer(hello("a"), 0.0)
    scheduler.grant_leases(0.0)
    _, ended = scheduler.connect_peer(hello("b"), 1.0)

    assert ["lost"] == [end.outcome for end in ended]
    assert ["b"] == [grant.incarnation for grant in scheduler.grant_leases(1.0)]


def test_two_losses_while_the_candidate_ran_end_it() -> None:
    """After two charges the candidate is not leased a third time."""
    scheduler = scheduler_with("t/1/evaluate")
    ended = []
    for name in ("a", "b"):
        scheduler.connect_peer(hello(name), 0.0)
        (granted,) = scheduler.grant_leases(0.0)
        scheduler.candidate_running(granted.lease, name)
        ended += scheduler.peer_lost(name)

    assert [False, True] == [end.exhausted for end in ended]
    scheduler.connect_peer(hello("c"), 0.0)
    assert [] == scheduler.grant_leases(0.0)


def test_losses_before_the_candidate_ran_are_never_charged() -> None:
    """Work that was only leased or being built when the evaluator died is always leased again."""
    scheduler = scheduler_with("t/1/evaluate")
    for name in "abcdef":
        scheduler.connect_peer(hello(name), 0.0)
        assert len(scheduler.grant_leases(0.0)) == 1
        (end,) = scheduler.peer_lost(name)
        assert not end.exhausted


def test_a_lease_that_never_arrived_is_missed_by_the_second_heartbeat() -> None:
    """The first heartbeat may have been sent before the lease arrived; the second was not."""
    scheduler = scheduler_with("t/1/evaluate")
    scheduler.connect_peer(hello("a"), 0.0)
    scheduler.grant_leases(0.0)

    assert ([], []) == scheduler.renew_leases("a", Heartbeat(), 1.0)
    _, (end,) = scheduler.renew_leases("a", Heartbeat(), 6.0)
    assert end.outcome == "missed"


def test_the_charge_for_a_silent_peer_is_refunded_when_it_reconnects() -> None:
    """The peer was not lost, so its candidate is not charged.

    The number of refunds is limited: a candidate that silences every evaluator is charged.
    """
    scheduler = scheduler_with("t/1/evaluate")
    now, outcomes = 0.0, []
    for _ in range(10):
        scheduler.connect_peer(hello("a"), now)
        granted = scheduler.grant_leases(now)
        if not granted:
            break
        scheduler.candidate_running(granted[0].lease, "a")
        now += LEASE_S + 1
        outcomes += [(end.outcome, end.exhausted) for end in scheduler.expire_leases(now)]
        outcomes += [
            (end.outcome, end.exhausted) for end in scheduler.connect_peer(hello("a"), now)[1]
        ]
    assert [("expired", False), ("silent", False)] * 3 == outcomes[:6]
    assert [("expired", False), ("expired", True)] == outcomes[6:]


def open_grant() -> GrantedLease:
    return GrantedLease(
        work="t/1/evaluate",
        role=Role.EVALUATOR,
        slot="evaluator-0",
        incarnation="a",
        epoch=7,
        expires_at=15.0,
    )


def test_after_a_power_cut_the_slots_new_incarnation_gets_the_work_at_once() -> None:
    """Coordinator and worker both died: the slot's new incarnation proves the old one dead."""
    scheduler = Scheduler(lease_s=LEASE_S, epoch=7)
    scheduler.restore([open_grant()], {})
    scheduler.enqueue("t/1/evaluate", Role.EVALUATOR)
    _, ended = scheduler.connect_peer(hello("b"), 0.1)

    assert ["lost"] == [end.outcome for end in ended]
    assert ["b"] == [grant.incarnation for grant in scheduler.grant_leases(0.1)]


def test_a_machine_loss_is_not_charged_to_the_candidate_at_first() -> None:
    """The work of a lost machine is leased again without a charge.

    The number of such losses is limited: a candidate that ends every machine is charged.
    """
    scheduler = scheduler_with("t/1/evaluate")
    ended = []
    for number in range(MAX_MACHINE_LOSSES + MAX_LOSSES):
        scheduler.connect_peer(hello(f"w{number}"), 0.0)
        (granted,) = scheduler.grant_leases(0.0)
        scheduler.candidate_running(granted.lease, f"w{number}")
        ended += scheduler.machine_lost("")

    outcomes = [(end.outcome, end.exhausted) for end in ended]
    assert [("cut", False)] * MAX_MACHINE_LOSSES + [("lost", False), ("lost", True)] == outcomes


def test_the_next_supervisor_of_a_guest_refunds_the_charges_for_its_silence() -> None:
    """The joined machine was killed under a candidate and came back: no evaluator crashed.

    Another machine's leases stay as they are.
    """
    scheduler = scheduler_with("t/1/evaluate", "t/2/evaluate")

    def supervisor(name: str) -> Hello:
        return Hello(
            role=Role.SUPERVISOR, slot="supervisor@far-1.aa", incarnation=name, pid=1, credit=0
        )

    scheduler.connect_peer(supervisor("s1"), 0.0)
    scheduler.connect_peer(hello("here"), 0.0)
    scheduler.connect_peer(hello("w1", "evaluator-0@far-1.aa"), 0.0)
    here, far = scheduler.grant_leases(0.0)
    for granted in (here, far):
        scheduler.candidate_running(granted.lease, granted.incarnation)
    scheduler.renew_leases("here", Heartbeat(held_leases=(here.lease,)), LEASE_S)
    (expired,) = scheduler.expire_leases(LEASE_S + 1)
    _, ended = scheduler.connect_peer(supervisor("s2"), LEASE_S + 2)

    assert ("expired", "cut") == (expired.outcome, ended[0].outcome)
    assert [far.epoch] == [end.granted.epoch for end in ended]
    scheduler.connect_peer(hello("w2", "evaluator-0@far-1.aa"), LEASE_S + 2)
    (again,) = scheduler.grant_leases(LEASE_S + 2)
    scheduler.candidate_running(again.lease, "w2")
    assert [False] == [end.exhausted for end in scheduler.peer_lost("w2")]
    assert scheduler.settle_result(here.lease, "here") is here


def test_a_restarted_coordinator_lets_the_holder_keep_its_lease() -> None:
    """Open leases are restored as they were; their holders go on, without a charge."""
    scheduler = Scheduler(lease_s=LEASE_S, epoch=7)
    granted = open_grant()
    scheduler.restore([granted], {})
    scheduler.enqueue("t/1/evaluate", Role.EVALUATOR)
    revoked, ended = scheduler.connect_peer(hello("a", held=(granted.lease,)), 1.0)

    assert ([], []) == (revoked, ended)
    assert [] == scheduler.grant_leases(1.0)
    assert scheduler.settle_result(granted.lease, "a") is granted


class SchedulerMachine(RuleBasedStateMachine):
    """Any order of new work, hellos, heartbeats, losses, expiries and results.

    Some of the work is background work, which only peers without other work hold.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(lease_s=LEASE_S, epoch=0)
        self.now = 0.0
        self.enqueued: set[str] = set()
        self.background: set[str] = set()
        self.done: list[str] = []
        self.exhausted: list[str] = []
        self.epochs: list[int] = []
        self.held: dict[str, set[Lease]] = {}
        self.count = 0

    def record(self, ended: list) -> None:
        self.exhausted += [end.granted.work for end in ended if end.exhausted]

    def grant(self) -> None:
        for granted in self.scheduler.grant_leases(self.now):
            self.epochs.append(granted.epoch)
            self.held[granted.incarnation].add(granted.lease)
        for end in self.scheduler.take_preempted():
            self.held[end.granted.incarnation].discard(end.granted.lease)
        leased = set(self.scheduler.grants)
        if self.enqueued - leased - self.background - {*self.done, *self.exhausted}:
            assert all(peer.credit <= peer.load for peer in self.scheduler.peers.values())

    @rule(is_background=st.booleans())
    def enqueue(self, is_background: bool) -> None:
        self.count += 1
        work = f"t/{self.count}/evaluate"
        self.enqueued.add(work)
        if is_background:
            self.background.add(work)
        self.scheduler.enqueue(work, Role.EVALUATOR, Placement(is_background=is_background))
        self.grant()

    @rule(slot=st.integers(0, 2))
    def start(self, slot: int) -> None:
        self.count += 1
        name = f"w{self.count}"
        self.held[name] = set()
        self.record(self.scheduler.connect_peer(hello(name, f"evaluator-{slot}"), self.now)[1])
        self.grant()

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        held = [(name, lease) for name in sorted(self.held) for lease in self.held[name]]
        if held:
            name, lease = data.draw(st.sampled_from(sorted(held, key=str)))
            self.held[name].discard(lease)
            if self.scheduler.settle_result(lease, name):
                self.done.append(lease.work)
            self.grant()

    @rule(data=st.data(), running=st.booleans())
    def lose(self, data: st.DataObject, running: bool) -> None:
        if self.scheduler.peers:
            name = data.draw(st.sampled_from(sorted(self.scheduler.peers)))
            if running:
                for lease in self.held[name]:
                    self.scheduler.candidate_running(lease, name)
            self.record(self.scheduler.peer_lost(name))
            self.grant()

    @rule()
    def lose_machine(self) -> None:
        self.record(self.scheduler.machine_lost(""))
        self.grant()

    @rule(seconds=st.floats(0.1, 20.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.record(self.scheduler.expire_leases(self.now))

    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        if self.scheduler.peers:
            name = data.draw(st.sampled_from(sorted(self.scheduler.peers)))
            leases = tuple(sorted(self.held[name], key=str))
            _, ended = self.scheduler.renew_leases(name, Heartbeat(held_leases=leases), self.now)
            self.record(ended)

    @invariant()
    def all_work_is_somewhere_exactly_once(self) -> None:
        ended = self.done + self.exhausted
        assert len(set(ended)) == len(ended)
        assert len(self.enqueued) == self.scheduler.waiting_count() + len(
            self.scheduler.grants
        ) + len(ended)

    @invariant()
    def background_work_is_held_alone(self) -> None:
        for peer in self.scheduler.peers.values():
            assert len(peer.leases) == 1 or not peer.leases & self.background

    @invariant()
    def epochs_only_grow(self) -> None:
        assert sorted(set(self.epochs)) == self.epochs


SchedulerMachine.TestCase.settings = settings(stateful_step_count=40)
test_scheduler_machine = SchedulerMachine.TestCase
