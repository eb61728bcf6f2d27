"""The budget for model calls: the cap is never passed, in any order of deaths and messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from actors.coordinator.budget_service import BudgetLedger
from actors.coordinator.scheduling.budget import (
    CallBudget,
    ReplyAccounting,
    Reservation,
    ReservationState,
)
from actors.coordinator.storage.activity_store import ActivityStore
from actors.coordinator.storage.database import Database
from protocol.messages import CallCompleted, HandedBack, Lease, ReserveBudget
from protocol.values import STOP_LOST, Call, request_key

WORKS = ("t/1/plan", "t/1/write", "t/2/plan")


def reservation(
    number: int, usd: float, work: str = WORKS[0], incarnation: str = "a"
) -> Reservation:
    return Reservation(
        incarnation=incarnation,
        number=number,
        work=work,
        request="q",
        role="planner",
        model="m",
        usd=usd,
    )


class BudgetMachine(RuleBasedStateMachine):
    """Agents that request money, call, die and answer late; a server that charges every call."""

    @initialize(cap=st.integers(1, 60), most=st.tuples(*[st.integers(0, 20)] * 2))
    def begin(self, cap: int, most: tuple[int, int]) -> None:
        self.most = dict(zip(WORKS, most, strict=False))  # one request each, so one bound each
        self.budget = CallBudget(float(cap))
        self.number = 0
        # Calls under way: number -> (reservation, cost)
        self.calls: dict[int, tuple[Reservation, float]] = {}
        self.charged: dict[int, float] = {}  # by the server, for every call
        self.requested: dict[int, Reservation] = {}
        self.dead: set[str] = set()  # processes whose leases are over
        self.incarnations = {"a": "a0", "b": "b0"}  # slot -> the process in it
        self.answers: set[tuple[str, str]] = set()

    @rule(slot=st.sampled_from("ab"), work=st.sampled_from(WORKS[:2]))
    def request(self, slot: str, work: str) -> None:
        incarnation = self.incarnations[slot]
        holder = (incarnation, work)
        if any((one.incarnation, one.work) == holder for one, _ in self.calls.values()):
            return
        self.number += 1
        one = reservation(self.number, float(self.most[work]), work, incarnation)
        self.requested = {
            n: other
            for n, other in self.requested.items()
            if (other.incarnation, other.work) != holder
        }
        self.requested[self.number] = one
        self.budget.request_reservation(one)

    @rule(share=st.sampled_from((0.0, 0.5, 1.0)))
    def grant(self, share: float) -> None:
        """A granted call is made at once, and the server charges for it."""
        for one in self.budget.grant_reservations():
            del self.requested[one.number]
            self.calls[one.number] = (one, one.max_usd * share)
            self.charged[one.number] = one.max_usd * share

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """A reply arrives: from its holder, from a dead process, or from the spool."""
        number = data.draw(st.sampled_from(sorted(self.calls)))
        one, usd = self.calls.pop(number)
        known = (one.work, one.request) in self.answers
        sender = one.incarnation
        if one.incarnation in self.dead and not known and data.draw(st.booleans()):
            sender = "successor"
        accounting, settled = self.budget.record_reply(sender, one.work, "q", usd, known=known)
        assert accounting is (ReplyAccounting.DUPLICATE if known else ReplyAccounting.RECORD)
        assert settled is not None
        self.answers.add((one.work, one.request))
        if settled.key != one.key:
            # The reply settled another lost call of the same work: both calls are counted.
            self.calls[settled.number] = (settled, self.charged[settled.number])
            self.calls.pop(settled.number)

    @rule(slot=st.sampled_from("ab"))
    def die(self, slot: str) -> None:
        """A process is killed: its leases end, and another process gets its slot."""
        incarnation = self.incarnations[slot]
        self.incarnations[slot] = f"{slot}{len(self.dead) + 1}"
        for work in WORKS:
            for one in self.budget.end_lease(incarnation, work, observed_end=False):
                assert one.state is ReservationState.LOST
        self.requested = {
            n: one for n, one in self.requested.items() if one.incarnation != incarnation
        }
        self.dead.add(incarnation)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def break_off(self, data: st.DataObject) -> None:
        """A reply breaks off, and its process reports that."""
        alive = [n for n, (one, _) in self.calls.items() if one.incarnation not in self.dead]
        if alive:
            number = data.draw(st.sampled_from(sorted(alive)))
            one, _ = self.calls.pop(number)
            assert [one] == self.budget.charge_lost_call(one.key)

    @invariant()
    def never_passed(self) -> None:
        """The charges of the server, and the counted spend, stay within the cap."""
        if hasattr(self, "budget"):
            one = self.budget
            assert one.cap is not None
            assert sum(self.charged.values()) <= one.cap + 1e-9
            assert one.spent + one.reserved <= one.cap + 1e-9
            assert one.spent + one.reserved >= sum(self.charged.values()) - 1e-9

    @invariant()
    def refuses_only_when_nothing_can_change(self) -> None:
        """The budget is exhausted only when no call is under way and no requested one fits."""
        if hasattr(self, "budget") and self.budget.exhausted_reason():
            assert not self.budget.open_reservations()
            assert self.requested


TestBudgetMachine = BudgetMachine.TestCase


def test_a_call_that_does_not_fit_waits_for_those_under_way() -> None:
    """Their end may leave room under the cap; with none under way the reason names the amount."""
    budget = CallBudget(1.0)
    budget.request_reservation(reservation(1, 0.7))
    budget.request_reservation(reservation(2, 0.7, WORKS[1]))
    assert [1] == [one.number for one in budget.grant_reservations()]
    assert "" == budget.exhausted_reason()
    budget.record_reply("a", WORKS[0], "q", 0.2, known=False)
    assert [2] == [one.number for one in budget.grant_reservations()]
    budget.record_reply("a", WORKS[1], "q", 0.5, known=False)
    budget.request_reservation(reservation(3, 0.31, WORKS[2]))
    assert [] == budget.grant_reservations()
    assert "--max-cost 1: 0.700 US dollars are spent, and the next call may cost up to 0.310" in (
        budget.exhausted_reason()
    )


def test_without_a_cap_every_call_is_granted_at_once() -> None:
    """Also a call without a known price."""
    budget = CallBudget(None)
    budget.request_reservation(reservation(1, 1e9))
    budget.request_reservation(reservation(2, None, WORKS[1]))  # type: ignore[arg-type]
    assert 2 == len(budget.grant_reservations())


# --- the same, with run.db -------------------------------------------------------------------


class StoredBudget:
    """A budget ledger with a real run.db, which survives its process."""

    def __init__(self, folder: Path, cap: float) -> None:
        self.folder, self.cap = folder, cap
        self.open()

    def open(self) -> None:
        self.db = Database(self.folder)
        self.activity = ActivityStore(self.db)
        self.budget = BudgetLedger(self.activity, self.cap)

    def crash(self) -> None:
        """Kill the coordinator; only what was committed remains."""
        self.db.close()
        self.open()

    def reserve(
        self, incarnation: str, number: int, usd: float, work: str = WORKS[0], lost: int = 0
    ) -> bool:
        """Request the money for a call; return whether it was reserved."""
        lease = Lease(work=work, epoch=7)
        request = ReserveBudget(
            lease=lease,
            call_number=number,
            model="m",
            request_key=request_key("q"),
            usd=usd,
            lost_call_number=lost,
        )
        self.budget.reservation_requested(incarnation, "planner", request, 1.0)
        granted = self.budget.grant_reservations(1.0)
        self.db.commit()
        return (incarnation, number) in [(to, reserved.call_number) for to, reserved in granted]

    def complete(self, incarnation: str, usd: float, work: str = WORKS[0]) -> None:
        """Report a reply."""
        call = Call(model="m", request="q", reply="r", usd=usd, input_tokens=5)
        message = CallCompleted(lease=Lease(work=work, epoch=7), call=call)
        self.budget.call_completed(incarnation, "planner", message, 2)
        self.db.commit()

    def calls(self) -> list[tuple[str, float]]:
        return self.db.rows("SELECT stop, usd FROM call ORDER BY id")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[StoredBudget]:
    one = StoredBudget(tmp_path, cap=1.0)
    yield one
    one.db.close()


def test_a_reservation_survives_the_coordinator(disk: StoredBudget) -> None:
    """After a kill the next coordinator keeps the money reserved, and answers a repeated request.

    A request of another agent waits for it.
    """
    assert disk.reserve("a", 1, 0.7)
    disk.crash()
    assert not disk.reserve("b", 1, 0.7, WORKS[1])
    assert disk.reserve("a", 1, 0.7)
    disk.complete("a", 0.1)
    granted = disk.budget.grant_reservations(1.0)
    assert [("b", 1)] == [(to, reserved.call_number) for to, reserved in granted]


def test_a_killed_agents_call_is_counted_and_is_not_a_reply(disk: StoredBudget) -> None:
    """It is counted at its maximum; the next agent of the work does not get it as a reply."""
    assert disk.reserve("a", 1, 0.7)
    disk.budget.end_lease("a", WORKS[0], 2.0, observed_end=False)
    disk.db.commit()
    assert [(STOP_LOST, 0.7)] == disk.calls()
    assert () == disk.activity.calls(WORKS[0])
    assert 0.7 == disk.activity.spent_usd()
    assert not disk.reserve("b", 1, 0.7)
    assert "0.700 US dollars are spent" in disk.budget.exhausted_reason()


def test_a_spooled_reply_replaces_the_lost_call(disk: StoredBudget) -> None:
    """The successor hands over the reply that the dead process had paid for: counted once."""
    disk.reserve("a", 1, 0.7)
    disk.budget.end_lease("a", WORKS[0], 2.0, observed_end=False)
    disk.db.commit()
    disk.crash()
    disk.complete("b", 0.2)
    disk.complete("b", 0.2)
    assert [("end_turn", 0.2)] == disk.calls()
    assert 1 == len(disk.activity.calls(WORKS[0]))


def test_a_late_reply_after_a_second_call_is_counted_too(disk: StoredBudget) -> None:
    """Two payments are counted, to the cent; the first recorded reply stays the answer."""
    disk.reserve("a", 1, 0.4)
    disk.budget.end_lease("a", WORKS[0], 2.0, observed_end=False)
    disk.reserve("b", 1, 0.4)
    disk.complete("b", 0.2)
    disk.complete("a", 0.3)
    disk.complete("a", 0.3)
    disk.complete("b", 0.2)
    assert [("end_turn", 0.2), (STOP_LOST, 0.3)] == disk.calls()
    assert ["r"] == [call.reply for call in disk.activity.calls(WORKS[0])]


def test_a_broken_call_counts_and_the_next_has_its_own_reservation(disk: StoredBudget) -> None:
    """The agent reports the failed call; a repeated report changes nothing."""
    assert disk.reserve("a", 1, 0.4)
    assert disk.reserve("a", 2, 0.4, lost=1)
    assert disk.reserve("a", 2, 0.4, lost=1)
    disk.complete("a", 0.1)
    lease = Lease(work=WORKS[0], epoch=7)
    disk.budget.call_lost("a", HandedBack(lease=lease, lost_call_number=1), 3.0)
    assert [(STOP_LOST, 0.4), ("end_turn", 0.1)] == disk.calls()


def test_a_broken_call_counts_at_what_the_server_reported(disk: StoredBudget) -> None:
    """The spend is what the server reported, with its tokens, also after a crash.

    A figure above the reservation counts as the reservation.
    """
    assert disk.reserve("a", 1, 0.6)
    partial = Call(model="m", request="", reply="", stop=STOP_LOST, input_tokens=9, usd=0.2)
    lost = HandedBack(lease=Lease(work=WORKS[0], epoch=7), lost_call_number=1, lost_call=partial)
    disk.budget.call_lost("a", lost, 3.0)
    disk.db.commit()
    disk.crash()
    assert disk.reserve("a", 2, 0.8)
    disk.budget.call_lost(
        "a", replace(lost, lost_call_number=2, lost_call=replace(partial, usd=7.0)), 4.0
    )
    assert [(9, 0.2), (9, 0.8)] == disk.db.rows("SELECT input_tokens, usd FROM call ORDER BY id")
    assert not disk.reserve("b", 1, 0.01)
    disk.complete("b", 0.1)  # the reply to the lost call that was counted at 0.2
    assert 0.9 == pytest.approx(disk.activity.spent_usd())


def test_an_unused_reservation_is_released(disk: StoredBudget) -> None:
    """A request that was too long, refused or handed back made no call, and costs nothing."""
    assert disk.reserve("a", 1, 0.9)
    assert disk.reserve("a", 2, 0.8)  # a shorter request of the same work
    disk.budget.end_lease("a", WORKS[0], 2.0, observed_end=True)
    assert disk.reserve("b", 1, 1.0)
    assert [] == disk.calls()


def test_a_run_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """Its calls without today's columns are read, and counted."""
    disk = StoredBudget(tmp_path, cap=1.0)
    disk.complete("a", 0.25)
    for (view,) in disk.db.rows("SELECT name FROM sqlite_schema WHERE type = 'view'"):
        disk.db.write(f"DROP VIEW {view}")
    disk.db.write("DROP INDEX call_spend")
    for column in ("effort", "cache_write_tokens"):
        disk.db.write(f"ALTER TABLE call DROP COLUMN {column}")
    disk.db.write("DROP TABLE reservation")
    disk.db.commit()
    disk.crash()
    assert 0.25 == disk.activity.spent_usd()
    assert ["r"] == [call.reply for call in disk.activity.calls(WORKS[0])]
    disk.db.close()


def test_the_view_spend_has_a_row_for_each_node_and_role(disk: StoredBudget) -> None:
    """A user reads it with SQL: calls, tokens and dollars."""
    disk.complete("a", 0.25)
    disk.complete("a", 0.5, "t/12/plan")
    rows = disk.db.rows("SELECT task, node, role, calls, input_tokens, usd FROM spend")
    assert [("t", 1, "planner", 1, 5, 0.25), ("t", 12, "planner", 1, 5, 0.5)] == sorted(rows)
