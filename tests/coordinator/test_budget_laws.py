"""The allowance: whatever dies, and in whatever order it is said, the cap is never passed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
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


def reservation(number: int, usd: float, work: str = WORKS[0], who: str = "a") -> Reservation:
    return Reservation(
        incarnation=who, number=number, work=work, request="q", role="planner", model="m", usd=usd
    )


class World(RuleBasedStateMachine):
    """Agents that ask, call, die and answer late; a server that charges for every call made."""

    @initialize(cap=st.integers(1, 60), most=st.tuples(*[st.integers(0, 20)] * 2))
    def begin(self, cap: int, most: tuple[int, int]) -> None:
        self.most = dict(zip(WORKS, most, strict=False))  # one request each, so one bound each
        self.budget = CallBudget(float(cap))
        self.number = 0
        self.calls: dict[int, tuple[Reservation, float]] = {}  # granted -> and what it will cost
        self.charged: dict[int, float] = {}  # by the server, whoever hears of it
        self.asked: dict[int, Reservation] = {}
        self.gone: set[str] = set()  # processes whose leases are over
        self.place = {"a": "a0", "b": "b0"}  # who sits there now
        self.answers: set[tuple[str, str]] = set()

    @rule(place=st.sampled_from("ab"), work=st.sampled_from(WORKS[:2]))
    def ask(self, place: str, work: str) -> None:
        who = self.place[place]
        holder = (who, work)
        if any((one.incarnation, one.work) == holder for one, _ in self.calls.values()):
            return
        self.number += 1
        one = reservation(self.number, float(self.most[work]), work, who)
        self.asked = {
            n: other for n, other in self.asked.items() if (other.incarnation, other.work) != holder
        }
        self.asked[self.number] = one
        self.budget.request_reservation(one)

    @rule(share=st.sampled_from((0.0, 0.5, 1.0)))
    def grant(self, share: float) -> None:
        """Whoever is granted makes the call at once, and the server charges for it."""
        for one in self.budget.grant_reservations():
            del self.asked[one.number]
            self.calls[one.number] = (one, one.max_usd * share)
            self.charged[one.number] = one.max_usd * share

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """A reply arrives: from its holder, from one whose lease is over, or from the spool."""
        number = data.draw(st.sampled_from(sorted(self.calls)))
        one, usd = self.calls.pop(number)
        known = (one.work, one.request) in self.answers
        sender = one.incarnation
        if one.incarnation in self.gone and not known and data.draw(st.booleans()):
            sender = "successor"
        booking, settled = self.budget.record_reply(sender, one.work, "q", usd, known=known)
        assert booking is (ReplyAccounting.DUPLICATE if known else ReplyAccounting.RECORD)
        assert settled is not None
        self.answers.add((one.work, one.request))
        if settled.key != one.key:
            # Another lost call of the same work took its place in the books: both are counted.
            self.calls[settled.number] = (settled, self.charged[settled.number])
            self.calls.pop(settled.number)

    @rule(place=st.sampled_from("ab"))
    def die(self, place: str) -> None:
        """A process is killed: every lease of it is over, unseen; another one takes its place."""
        who = self.place[place]
        self.place[place] = f"{place}{len(self.gone) + 1}"
        for work in WORKS:
            for one in self.budget.end_lease(who, work, observed_end=False):
                assert one.state is ReservationState.LOST
        self.asked = {n: one for n, one in self.asked.items() if one.incarnation != who}
        self.gone.add(who)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def break_off(self, data: st.DataObject) -> None:
        """A reply breaks off; its process sees that and says so."""
        alive = [n for n, (one, _) in self.calls.items() if one.incarnation not in self.gone]
        if alive:
            number = data.draw(st.sampled_from(sorted(alive)))
            one, _ = self.calls.pop(number)
            assert [one] == self.budget.charge_lost_call(one.key)

    @invariant()
    def never_passed(self) -> None:
        """What the server charged, and what is counted, stay within the cap."""
        if hasattr(self, "budget"):
            one = self.budget
            assert one.cap is not None
            assert sum(self.charged.values()) <= one.cap + 1e-9
            assert one.spent + one.reserved <= one.cap + 1e-9
            assert one.spent + one.reserved >= sum(self.charged.values()) - 1e-9

    @invariant()
    def refuses_only_when_nothing_can_change(self) -> None:
        """A run is stopped when no call is under way and none of those asked for fits."""
        if hasattr(self, "budget") and self.budget.exhausted_reason():
            assert not self.budget.open_reservations()
            assert self.asked


TestWorld = World.TestCase
TestWorld.settings = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)


def test_a_call_that_does_not_fit_waits_for_those_under_way() -> None:
    """Their end may leave room; when nothing is under way the run says what it lacks."""
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


def test_without_a_cap_everything_goes_at_once() -> None:
    """No price, no cap: nobody waits."""
    budget = CallBudget(None)
    budget.request_reservation(reservation(1, 1e9))
    budget.request_reservation(reservation(2, None, WORKS[1]))  # type: ignore[arg-type]
    assert 2 == len(budget.grant_reservations())


# --- the same, on disk -----------------------------------------------------------------------


class Disk:
    """A purse over a real run.db, that can lose its process."""

    def __init__(self, folder: Path, cap: float) -> None:
        self.folder, self.cap = folder, cap
        self.open()

    def open(self) -> None:
        self.db = Database(self.folder)
        self.activity = ActivityStore(self.db)
        self.budget = BudgetLedger(self.activity, self.cap)

    def crash(self) -> None:
        """The coordinator dies without a word; what was committed is there."""
        self.db.close()
        self.open()

    def ask(self, who: str, number: int, usd: float, work: str = WORKS[0], lost: int = 0) -> bool:
        """Ask, and return whether leave was given for that call."""
        lease = Lease(work=work, epoch=7)
        asked = ReserveBudget(
            lease=lease,
            call_number=number,
            model="m",
            request_key=request_key("q"),
            usd=usd,
            lost_call_number=lost,
        )
        self.budget.reservation_requested(who, "planner", asked, 1.0)
        told = self.budget.grant_reservations(1.0)
        self.db.commit()
        return (who, number) in [(to, reserved.call_number) for to, reserved in told]

    def answer(self, who: str, usd: float, work: str = WORKS[0]) -> None:
        call = Call(model="m", request="q", reply="r", usd=usd, input_tokens=5)
        self.budget.call_completed(
            who, "planner", CallCompleted(lease=Lease(work=work, epoch=7), call=call), 2
        )
        self.db.commit()

    def calls(self) -> list[tuple[str, float]]:
        return self.db.rows("SELECT stop, usd FROM call ORDER BY id")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    one = Disk(tmp_path, cap=1.0)
    yield one
    one.db.close()


def test_a_reservation_survives_the_coordinator(disk: Disk) -> None:
    """Killed after leave was given: the next one still keeps the money, and says so again."""
    assert disk.ask("a", 1, 0.7)
    disk.crash()
    assert not disk.ask("b", 1, 0.7, WORKS[1])
    assert disk.ask("a", 1, 0.7)
    disk.answer("a", 0.1)
    assert [(who, told.call_number) for who, told in disk.budget.grant_reservations(1.0)] == [
        ("b", 1)
    ]


def test_a_killed_agents_call_is_counted_and_no_answer(disk: Disk) -> None:
    """At its most; whoever does the work next is not shown it as a reply."""
    assert disk.ask("a", 1, 0.7)
    disk.budget.end_lease("a", WORKS[0], 2.0, observed_end=False)
    disk.db.commit()
    assert [(STOP_LOST, 0.7)] == disk.calls()
    assert () == disk.activity.calls(WORKS[0])
    assert 0.7 == disk.activity.spent_usd()
    assert not disk.ask("b", 1, 0.7)
    assert "0.700 US dollars are spent" in disk.budget.exhausted_reason()


def test_a_spooled_reply_replaces_the_lost_call(disk: Disk) -> None:
    """What the successor finds on disk is what the dead one had paid for: counted once."""
    disk.ask("a", 1, 0.7)
    disk.budget.end_lease("a", WORKS[0], 2.0, observed_end=False)
    disk.db.commit()
    disk.crash()
    disk.answer("b", 0.2)
    disk.answer("b", 0.2)
    assert [("end_turn", 0.2)] == disk.calls()
    assert 1 == len(disk.activity.calls(WORKS[0]))


def test_a_late_reply_after_another_was_bought_is_counted_too(disk: Disk) -> None:
    """Paid twice is counted twice, to the cent; the first recorded stays the answer."""
    disk.ask("a", 1, 0.4)
    disk.budget.end_lease("a", WORKS[0], 2.0, observed_end=False)
    disk.ask("b", 1, 0.4)
    disk.answer("b", 0.2)
    disk.answer("a", 0.3)
    disk.answer("a", 0.3)
    disk.answer("b", 0.2)
    assert [("end_turn", 0.2), (STOP_LOST, 0.3)] == disk.calls()
    assert ["r"] == [call.reply for call in disk.activity.calls(WORKS[0])]


def test_a_call_that_broke_off_counts_and_the_next_has_its_own_money(disk: Disk) -> None:
    """The agent says which call it saw fail, once; said again it changes nothing."""
    assert disk.ask("a", 1, 0.4)
    assert disk.ask("a", 2, 0.4, lost=1)
    assert disk.ask("a", 2, 0.4, lost=1)
    disk.answer("a", 0.1)
    lease = Lease(work=WORKS[0], epoch=7)
    disk.budget.call_lost("a", HandedBack(lease=lease, lost_call_number=1), 3.0)
    assert [(STOP_LOST, 0.4), ("end_turn", 0.1)] == disk.calls()


def test_a_call_that_broke_off_counts_what_was_heard_of_it(disk: Disk) -> None:
    """Its prompt was counted by the server: less than was kept is spent, also after a crash, and
    its tokens are told with it; a figure above what was kept changes nothing."""
    assert disk.ask("a", 1, 0.6)
    heard = Call(model="m", request="", reply="", stop=STOP_LOST, input_tokens=9, usd=0.2)
    lost = HandedBack(lease=Lease(work=WORKS[0], epoch=7), lost_call_number=1, lost_call=heard)
    disk.budget.call_lost("a", lost, 3.0)
    disk.db.commit()
    disk.crash()
    assert disk.ask("a", 2, 0.8)
    disk.budget.call_lost(
        "a", replace(lost, lost_call_number=2, lost_call=replace(heard, usd=7.0)), 4.0
    )
    assert [(9, 0.2), (9, 0.8)] == disk.db.rows("SELECT input_tokens, usd FROM call ORDER BY id")
    assert not disk.ask("b", 1, 0.01)
    disk.answer("b", 0.1)  # of the call that was counted at 0.2, which nobody had seen the end of
    assert 0.9 == pytest.approx(disk.activity.spent_usd())


def test_leave_that_was_not_used_is_given_back(disk: Disk) -> None:
    """Too long, refused, or handed back: no call was made, nothing counts."""
    assert disk.ask("a", 1, 0.9)
    assert disk.ask("a", 2, 0.8)  # a shorter request of the same work
    disk.budget.end_lease("a", WORKS[0], 2.0, observed_end=True)
    assert disk.ask("b", 1, 1.0)
    assert [] == disk.calls()


def test_a_run_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """Its calls lack what is recorded today; they are read, and counted."""
    disk = Disk(tmp_path, cap=1.0)
    disk.answer("a", 0.25)
    disk.db.write("DROP VIEW spend")
    for column in ("effort", "cache_write_tokens"):
        disk.db.write(f"ALTER TABLE call DROP COLUMN {column}")
    disk.db.write("DROP TABLE reservation")
    disk.db.commit()
    disk.crash()
    assert 0.25 == disk.activity.spent_usd()
    assert ["r"] == [call.reply for call in disk.activity.calls(WORKS[0])]
    disk.db.close()


def test_spend_is_told_by_node_and_role(disk: Disk) -> None:
    """A person asks run.db with SQL: each node and role with calls, tokens and dollars."""
    disk.answer("a", 0.25)
    disk.answer("a", 0.5, "t/12/plan")
    rows = disk.db.rows("SELECT task, node, role, calls, input_tokens, usd FROM spend")
    assert [("t", 1, "planner", 1, 5, 0.25), ("t", 12, "planner", 1, 5, 0.5)] == sorted(rows)
