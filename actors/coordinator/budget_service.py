"""The budget for model calls made durable, and the answers to the agents that wait for money.

Everything that the pure `CallBudget` decides is written in the round's transaction, and
`BudgetReserved` is sent after the commit.  So a reservation that an agent knows of survives a crash
of the coordinator, and a lost call is a row of table `call` like any other.
"""

from __future__ import annotations

from actors.coordinator.scheduling.budget import (
    CallBudget,
    ReplyAccounting,
    Reservation,
    ReservationState,
)
from actors.coordinator.storage.activity_store import ActivityStore
from protocol.messages import BudgetReserved, CallCompleted, HandedBack, Lease, ReserveBudget
from protocol.values import STOP_LOST, Call, request_key


class BudgetLedger:
    """The budget of one run: decides, and writes each decision to `run.db`."""

    def __init__(self, activity: ActivityStore, cap: float | None) -> None:
        self._activity = activity
        self._budget = CallBudget(cap, activity.spent_usd(), activity.reservations())
        self._repeated: list[tuple[str, BudgetReserved]] = []  # answers to repeated requests

    def reservation_requested(
        self, sender: str, role: str, message: ReserveBudget, at: float
    ) -> None:
        """Take a request for money from the holder of a lease."""
        self.call_lost(sender, message, at)
        key = (sender, message.call_number)
        if self._budget.is_open(key):
            self._repeated.append(
                (sender, BudgetReserved(lease=message.lease, call_number=message.call_number))
            )
            return
        if self._activity.has_reservation(*key):
            return  # a late repetition of a request that has ended
        requested = Reservation(
            incarnation=sender,
            number=message.call_number,
            work=message.lease.work,
            request=message.request_key,
            role=role,
            model=message.model,
            usd=message.usd,
            epoch=message.lease.epoch,
        )
        self._write(self._budget.request_reservation(requested), at)

    def call_completed(self, sender: str, role: str, message: CallCompleted, at: float) -> None:
        """Record a reply and its cost once, however often and by which process it is reported."""
        call, work = message.call, message.lease.work
        accounting, settled = self._budget.record_reply(
            sender,
            work,
            request_key(call.request),
            call.usd,
            known=self._activity.has_call(work, call.request),
        )
        if settled is not None:
            self._activity.end_reservation(settled)
        if accounting is ReplyAccounting.RECORD:
            self._activity.add_call(work, role, call, at)
        elif accounting is ReplyAccounting.DUPLICATE:
            self._activity.add_call(work, role, _duplicate_payment(call), at)

    def call_lost(self, incarnation: str, message: ReserveBudget | HandedBack, at: float) -> None:
        """Count a call that failed at its maker, and that may have been paid for."""
        partial = message.lost_call
        lost = self._budget.charge_lost_call(
            (incarnation, message.lost_call_number), partial.usd if partial else None
        )
        self._write(lost, at, partial)

    def end_lease(self, incarnation: str, work: str, at: float, *, observed_end: bool) -> None:
        """End the reservations under a lease; `observed_end` as in `CallBudget.end_lease`."""
        self._write(self._budget.end_lease(incarnation, work, observed_end=observed_end), at)

    def charge_orphaned_calls(self, held: set[tuple[str, str]], at: float) -> None:
        """Count the calls of leases that are not in `held`, as (incarnation, work), as lost."""
        for one in self._budget.open_reservations():
            if (one.incarnation, one.work) not in held:
                self._write(self._budget.charge_lost_call(one.key), at)

    def grant_reservations(self, at: float) -> list[tuple[str, BudgetReserved]]:
        """Reserve what fits; return (incarnation, message), to be sent after the commit."""
        answers, self._repeated = self._repeated, []
        for one in self._budget.grant_reservations():
            self._activity.add_reservation(one, at)
            lease = Lease(work=one.work, epoch=one.epoch)
            answers.append((one.incarnation, BudgetReserved(lease=lease, call_number=one.number)))
        return answers

    def set_cap(self, cap: float) -> None:
        """Change the cap; calls under way keep their reservations."""
        self._budget.cap = cap

    def exhausted_reason(self) -> str:
        """Return why no further call can be made; "" as long as one can."""
        return self._budget.exhausted_reason()

    def _write(self, changed: list[Reservation], at: float, partial: Call | None = None) -> None:
        for one in changed:
            self._activity.end_reservation(one)
            if one.state is ReservationState.LOST:
                self._activity.add_lost_call(one, at, partial)


def _duplicate_payment(call: Call) -> Call:
    """Return the call to record for a second reply to the same request: its cost, no text."""
    return Call(
        model=call.model,
        request="",
        reply="",
        stop=STOP_LOST,
        temperature=call.temperature,
        effort=call.effort,
        input_tokens=call.input_tokens,
        cached_tokens=call.cached_tokens,
        cache_write_tokens=call.cache_write_tokens,
        output_tokens=call.output_tokens,
        usd=call.usd,
        seconds=call.seconds,
    )
