"""The budget for model calls: what was spent, and the money reserved for calls under way.

A pure state machine, like the search and the scheduler.  An agent asks before each call and names
the most that the call can cost; `budget_service.py` makes the decision durable before the agent is
told.  It promises that spend and open reservations together never pass the cap, even when
processes die: a call without a known end counts at its maximum, until its reply arrives after all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

ReservationKey = tuple[str, int]


class ReservationState(StrEnum):
    """The state of the money for one call."""

    OPEN = "open"  # the call may be under way
    SETTLED = "settled"  # the reply is recorded, with its actual cost
    RELEASED = "released"  # no call was made, or the server took no money
    LOST = "lost"  # the call's end is not known: counted at its maximum


class ReplyAccounting(StrEnum):
    """How to count a reply."""

    RECORD = "answer"  # record it
    DUPLICATE = "twice"  # another reply to the same request is recorded: record the cost only
    IGNORE = "nothing"  # this reply is recorded already


@dataclass(slots=True, kw_only=True)
class Reservation:
    """The money for one call."""

    incarnation: str
    number: int  # of the call, in that process
    work: str
    request: str  # the key of the request's text
    role: str
    model: str
    usd: float | None  # at most; of a lost call by what its maker saw; None: no price is known
    epoch: int = 0  # of the lease that it was requested under; not stored
    state: ReservationState = ReservationState.OPEN

    @property
    def key(self) -> ReservationKey:
        return self.incarnation, self.number

    @property
    def max_usd(self) -> float:
        return self.usd or 0.0


class CallBudget:
    """All reservations that can still change, and the spend."""

    def __init__(
        self, cap: float | None, spent: float = 0.0, known: Iterable[Reservation] = ()
    ) -> None:
        self.cap = cap
        self.spent = spent  # lost calls included
        self._waiting: dict[ReservationKey, Reservation] = {}
        self._open: dict[ReservationKey, Reservation] = {}
        self._lost: dict[ReservationKey, Reservation] = {}
        for one in known:
            (self._open if one.state is ReservationState.OPEN else self._lost)[one.key] = one

    @property
    def reserved(self) -> float:
        """The most that the calls under way may cost."""
        return sum(one.max_usd for one in self._open.values())

    def open_reservations(self) -> list[Reservation]:
        """Return the reservations of calls that may be under way."""
        return list(self._open.values())

    def is_open(self, key: ReservationKey) -> bool:
        """Whether that reservation was granted and has not ended."""
        return key in self._open

    def request_reservation(self, requested: Reservation) -> list[Reservation]:
        """Queue a reservation; return the holder's earlier one, now released: it made no call."""
        if requested.key in self._waiting:
            return []  # a repeated request keeps its position
        released = self._end_earlier(requested)
        self._waiting[requested.key] = requested
        return released

    def grant_reservations(self) -> list[Reservation]:
        """Open the reservations that the cap allows, in the order of the requests."""
        granted = []
        for one in list(self._waiting.values()):
            if self._fits(one):
                del self._waiting[one.key]
                self._open[one.key] = one
                granted.append(one)
        return granted

    def exhausted_reason(self) -> str:
        """Return why the run can't go on; "" as long as it can.

        The end of a call under way may leave room under the cap: until then the run waits.
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
        """Count a call at its maximum; return its reservation, now lost, unless it had ended.

        `usd`: the most that the call can have cost by what its maker saw, where that is less.
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
        """End the reservations under a lease; return those that changed, released or lost.

        `observed_end`: the holder itself ended the lease, so none of its calls is under way.
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
        """Count a reply; return how to count it, and the reservation that it settles.

        A lost reservation was counted at its maximum, which is taken back.  `known`: a reply to
        this request is recorded already.
        """
        key = (work, request)
        mine = [one for one in self._open.values() if one.incarnation == incarnation]
        late = [one for one in self._lost.values() if one.incarnation == incarnation]
        # A process hands over the replies that a dead one left in the spool.  They do not name
        # the dead process: the smallest reservation is taken back, never to count too little.
        left = [] if known else sorted(self._lost.values(), key=lambda one: -one.max_usd)
        found = [one for one in (*left, *late, *mine) if (one.work, one.request) == key]
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

    def _end_earlier(self, requested: Reservation) -> list[Reservation]:
        """End the holder's reservation for the same work: it makes one call at a time."""
        holder = (requested.incarnation, requested.work)
        self._waiting = {
            key: one for key, one in self._waiting.items() if (one.incarnation, one.work) != holder
        }
        earlier = [key for key, one in self._open.items() if (one.incarnation, one.work) == holder]
        return [one for key in earlier for one in self._release(key)]
