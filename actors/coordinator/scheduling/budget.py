"""The allowance: what was spent, what calls under way may cost at most, and who may ask next.

A pure state machine, like the search and the fleet.  An agent asks before each call and names the
most that it can cost; the coordinator's shell (`purse`) makes what comes out durable before it
tells anybody.  It promises that what was spent and all that may still be spent never pass the cap,
whatever dies: a call whose end nobody saw counts at its most, until its reply turns up after all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

ReservationKey = tuple[str, int]


class ReservationState(StrEnum):
    """Where the money for one call is."""

    OPEN = "open"  # the call may be under way
    SETTLED = "settled"  # its reply is recorded, with what it really cost
    RELEASED = "released"  # no call was made, or the server took none
    LOST = "lost"  # nobody saw its end: counted at its most


class ReplyAccounting(StrEnum):
    """What to do with a reply."""

    RECORD = "answer"  # record it
    DUPLICATE = "twice"  # another reply to the same request is recorded: note what it cost
    IGNORE = "nothing"  # it is recorded already


@dataclass(slots=True, kw_only=True)
class Reservation:
    """The money for one call."""

    incarnation: str
    number: int  # of the call, in that process
    work: str
    request: str  # the key of the request's text
    role: str
    model: str
    usd: float | None  # at most, of a lost one by what was heard; None: no price is known
    epoch: int = 0  # of the lease that it was asked under; not stored
    state: ReservationState = ReservationState.OPEN

    @property
    def key(self) -> ReservationKey:
        return self.incarnation, self.number

    @property
    def max_usd(self) -> float:
        return self.usd or 0.0


class CallBudget:
    """All reservations that can still matter, and the sum that is spent."""

    def __init__(
        self, cap: float | None, spent: float = 0.0, known: Iterable[Reservation] = ()
    ) -> None:
        self.cap = cap
        self.spent = spent  # the lost ones included
        self._waiting: dict[ReservationKey, Reservation] = {}
        self._open: dict[ReservationKey, Reservation] = {}
        self._lost: dict[ReservationKey, Reservation] = {}
        for one in known:
            (self._open if one.state is ReservationState.OPEN else self._lost)[one.key] = one

    @property
    def reserved(self) -> float:
        """What the calls under way may cost at most."""
        return sum(one.max_usd for one in self._open.values())

    def open_reservations(self) -> list[Reservation]:
        """Return the reservations of calls that may be under way."""
        return list(self._open.values())

    def is_open(self, key: ReservationKey) -> bool:
        """Whether that very reservation was granted and not ended."""
        return key in self._open

    def request_reservation(self, wanted: Reservation) -> list[Reservation]:
        """Queue a reservation; return the holder's earlier one, which made no call, released."""
        if wanted.key in self._waiting:
            return []  # said again: it keeps its place
        released = self._end_earlier(wanted)
        self._waiting[wanted.key] = wanted
        return released

    def grant_reservations(self) -> list[Reservation]:
        """Open what fits, in the order of asking."""
        granted = []
        for one in list(self._waiting.values()):
            if self._fits(one):
                del self._waiting[one.key]
                self._open[one.key] = one
                granted.append(one)
        return granted

    def exhausted_reason(self) -> str:
        """Return why the run can't go on; "" as long as it can.

        While calls are under way their end may leave room: then it is waited for.
        """
        if self._open or not self._waiting:
            return ""
        one = next(iter(self._waiting.values()))
        if one.usd is None:
            return f"--max-cost {self.cap:g}: no price of {one.model} is known"
        return (
            f"--max-cost {self.cap:g}: {self.spent:.3f} US dollars are spent, and the next call may"
            f" cost up to {one.usd:.3f}; resume with a larger --max-cost"
        )

    def charge_lost_call(self, key: ReservationKey, usd: float | None = None) -> list[Reservation]:
        """Count a call at its most; return it, now lost, unless it had ended.

        `usd`: what its maker heard that it can have cost at most, where that is less.
        """
        one = self._open.pop(key, None)
        if one is None:
            return []
        one.state = ReservationState.LOST
        if one.usd is not None and usd is not None:
            one.usd = min(one.usd, usd)
        self._lost[key] = one
        self.spent += one.max_usd
        return [one]

    def end_lease(self, incarnation: str, work: str, *, observed_end: bool) -> list[Reservation]:
        """End what was reserved under a lease; `observed_end`: its holder says that no call is
        under way.

        Return the reservations that changed, released or lost.
        """
        for key, one in list(self._waiting.items()):
            if (one.incarnation, one.work) == (incarnation, work):
                del self._waiting[key]
        changed = []
        for key, one in list(self._open.items()):
            if (one.incarnation, one.work) == (incarnation, work):
                changed += self._release(key) if observed_end else self.charge_lost_call(key)
        return changed

    def record_reply(
        self, incarnation: str, work: str, request: str, usd: float | None, *, known: bool
    ) -> tuple[ReplyAccounting, Reservation | None]:
        """Count a reply; return how to book it, and the reservation that it settles.

        A settled one that was lost had its most counted, which is taken back.  `known`: a reply to
        this request is recorded already.
        """
        asked = (work, request)
        mine = [one for one in self._open.values() if one.incarnation == incarnation]
        late = [one for one in self._lost.values() if one.incarnation == incarnation]
        # A reply that a dead process left in the spool is handed over by its successor.  Whose it
        # was is not said; the smallest is taken back, so that too little is never counted.
        left = [] if known else sorted(self._lost.values(), key=lambda one: -one.max_usd)
        found = [one for one in (*left, *late, *mine) if (one.work, one.request) == asked]
        if not found and known:
            return ReplyAccounting.IGNORE, None
        self.spent += usd or 0.0
        if found:
            self._settle(found[-1])
        return (ReplyAccounting.DUPLICATE if known else ReplyAccounting.RECORD), (
            found[-1] if found else None
        )

    # --- inside ------------------------------------------------------------------------------

    def _fits(self, one: Reservation) -> bool:
        if self.cap is None:
            return True
        return one.usd is not None and self.spent + self.reserved + one.usd <= self.cap

    def _settle(self, one: Reservation) -> None:
        if one.state is ReservationState.LOST:
            self.spent -= one.max_usd
            del self._lost[one.key]
        else:
            del self._open[one.key]
        one.state = ReservationState.SETTLED

    def _release(self, key: ReservationKey) -> list[Reservation]:
        one = self._open.pop(key)
        one.state = ReservationState.RELEASED
        return [one]

    def _end_earlier(self, wanted: Reservation) -> list[Reservation]:
        """End what the same holder had for the same work: it makes one call at a time."""
        holder = (wanted.incarnation, wanted.work)
        self._waiting = {
            key: one for key, one in self._waiting.items() if (one.incarnation, one.work) != holder
        }
        earlier = [key for key, one in self._open.items() if (one.incarnation, one.work) == holder]
        return [one for key in earlier for one in self._release(key)]
