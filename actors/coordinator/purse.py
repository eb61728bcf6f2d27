"""The purse: the allowance made durable, and told to those who wait for it.

Everything that the pure `Allowance` decides is written into the round's transaction; `Reserved` is
said after its commit.  So a reservation that an agent knows of survives the coordinator, and a call
that was lost is a row of the spend like any other.
"""

from __future__ import annotations

from actors.coordinator.allowance import Allowance, Booking, Reservation, State
from actors.coordinator.books import Books
from protocol.messages import Answered, Lease, Reserve, Reserved, Returned
from protocol.values import LOST, Call, request_key


class Purse:
    """What this run may still spend."""

    def __init__(self, books: Books, cap: float | None) -> None:
        self._books = books
        self._allowance = Allowance(cap, books.spent_usd(), books.reservations())
        self._told: list[tuple[str, Reserved]] = []

    def asked(self, sender: str, role: str, message: Reserve, at: float) -> None:
        """Take a request for money from whoever holds that lease."""
        self.call_lost(sender, message, at)
        key = (sender, message.number)
        if self._allowance.is_open(key):
            self._told.append((sender, Reserved(lease=message.lease, number=message.number)))
            return
        if self._books.has_reservation(*key):
            return  # said again, and ended long ago
        wanted = Reservation(
            incarnation=sender,
            number=message.number,
            work=message.lease.work,
            request=message.request,
            role=role,
            model=message.model,
            usd=message.usd,
            epoch=message.lease.epoch,
        )
        self._write(self._allowance.ask(wanted), at)

    def answered(self, sender: str, role: str, message: Answered, at: float) -> None:
        """Record a reply and what it cost: once, whoever says it and how often."""
        call, work = message.call, message.lease.work
        booking, settled = self._allowance.answered(
            sender,
            work,
            request_key(call.request),
            call.usd,
            known=self._books.knows(work, call.request),
        )
        if settled is not None:
            self._books.end_reservation(settled)
        if booking is Booking.ANSWER:
            self._books.add_call(work, role, call, at)
        elif booking is Booking.TWICE:
            self._books.add_call(work, role, _paid_twice(call), at)

    def call_lost(self, incarnation: str, message: Reserve | Returned, at: float) -> None:
        """Count a call that its maker saw fail, and that may have been paid for."""
        heard = message.lost_call
        lost = self._allowance.lose((incarnation, message.lost), heard.usd if heard else None)
        self._write(lost, at, heard)

    def lease_over(self, incarnation: str, work: str, at: float, *, seen: bool) -> None:
        """End what was reserved under a lease; `seen`: by a holder that has no call under way."""
        self._write(self._allowance.lease_over(incarnation, work, seen=seen), at)

    def lose_orphans(self, held: set[tuple[str, str]], at: float) -> None:
        """Count what was reserved under leases that nobody holds any more."""
        for one in self._allowance.open():
            if (one.incarnation, one.work) not in held:
                self._write(self._allowance.lose(one.key), at)

    def grant(self, at: float) -> list[tuple[str, Reserved]]:
        """Reserve what fits; return (incarnation, message) to be told after the commit."""
        told, self._told = self._told, []
        for one in self._allowance.grant():
            self._books.add_reservation(one, at)
            lease = Lease(work=one.work, epoch=one.epoch)
            told.append((one.incarnation, Reserved(lease=lease, number=one.number)))
        return told

    def refusal(self) -> str:
        """Return why nothing more can be asked; "" as long as it can."""
        return self._allowance.refusal()

    def _write(self, changed: list[Reservation], at: float, heard: Call | None = None) -> None:
        for one in changed:
            self._books.end_reservation(one)
            if one.state is State.LOST:
                self._books.add_lost_call(one, at, heard)


def _paid_twice(call: Call) -> Call:
    """Return what is kept of a second reply to the same request: what it cost."""
    return Call(
        model=call.model,
        request="",
        reply="",
        stop=LOST,
        temperature=call.temperature,
        effort=call.effort,
        input_tokens=call.input_tokens,
        cached_tokens=call.cached_tokens,
        cache_write_tokens=call.cache_write_tokens,
        output_tokens=call.output_tokens,
        usd=call.usd,
        seconds=call.seconds,
    )
