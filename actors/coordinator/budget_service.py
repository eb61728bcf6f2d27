"""The purse: the allowance made durable, and told to those who wait for it.

Everything that the pure `CallBudget` decides is written into the round's transaction;
`BudgetReserved` is said after its commit.  So a reservation that an agent knows of survives the
coordinator, and a call that was lost is a row of the spend like any other.
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
    """What this run may still spend."""

    def __init__(self, activity: ActivityStore, cap: float | None) -> None:
        self._activity = activity
        self._budget = CallBudget(cap, activity.spent_usd(), activity.reservations())
        self._told: list[tuple[str, BudgetReserved]] = []

    def reservation_requested(
        self, sender: str, role: str, message: ReserveBudget, at: float
    ) -> None:
        """Take a request for money from whoever holds that lease."""
        self.call_lost(sender, message, at)
        key = (sender, message.call_number)
        if self._budget.is_open(key):
            self._told.append(
                (sender, BudgetReserved(lease=message.lease, call_number=message.call_number))
            )
            return
        if self._activity.has_reservation(*key):
            return  # said again, and ended long ago
        wanted = Reservation(
            incarnation=sender,
            number=message.call_number,
            work=message.lease.work,
            request=message.request_key,
            role=role,
            model=message.model,
            usd=message.usd,
            epoch=message.lease.epoch,
        )
        self._write(self._budget.request_reservation(wanted), at)

    def call_completed(self, sender: str, role: str, message: CallCompleted, at: float) -> None:
        """Record a reply and what it cost: once, whoever says it and how often."""
        call, work = message.call, message.lease.work
        booking, settled = self._budget.record_reply(
            sender,
            work,
            request_key(call.request),
            call.usd,
            known=self._activity.has_call(work, call.request),
        )
        if settled is not None:
            self._activity.end_reservation(settled)
        if booking is ReplyAccounting.RECORD:
            self._activity.add_call(work, role, call, at)
        elif booking is ReplyAccounting.DUPLICATE:
            self._activity.add_call(work, role, _duplicate_payment(call), at)

    def call_lost(self, incarnation: str, message: ReserveBudget | HandedBack, at: float) -> None:
        """Count a call that its maker saw fail, and that may have been paid for."""
        heard = message.lost_call
        lost = self._budget.charge_lost_call(
            (incarnation, message.lost_call_number), heard.usd if heard else None
        )
        self._write(lost, at, heard)

    def end_lease(self, incarnation: str, work: str, at: float, *, observed_end: bool) -> None:
        """End what was reserved under a lease; `observed_end`: by a holder that has no call under
        way.
        """
        self._write(self._budget.end_lease(incarnation, work, observed_end=observed_end), at)

    def charge_orphaned_calls(self, held: set[tuple[str, str]], at: float) -> None:
        """Count what was reserved under leases that nobody holds any more."""
        for one in self._budget.open_reservations():
            if (one.incarnation, one.work) not in held:
                self._write(self._budget.charge_lost_call(one.key), at)

    def grant_reservations(self, at: float) -> list[tuple[str, BudgetReserved]]:
        """Reserve what fits; return (incarnation, message) to be told after the commit."""
        told, self._told = self._told, []
        for one in self._budget.grant_reservations():
            self._activity.add_reservation(one, at)
            lease = Lease(work=one.work, epoch=one.epoch)
            told.append((one.incarnation, BudgetReserved(lease=lease, call_number=one.number)))
        return told

    def exhausted_reason(self) -> str:
        """Return why nothing more can be asked; "" as long as it can."""
        return self._budget.exhausted_reason()

    def _write(self, changed: list[Reservation], at: float, heard: Call | None = None) -> None:
        for one in changed:
            self._activity.end_reservation(one)
            if one.state is ReservationState.LOST:
                self._activity.add_lost_call(one, at, heard)


def _duplicate_payment(call: Call) -> Call:
    """Return what is kept of a second reply to the same request: what it cost."""
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
