"""The leases that a worker holds, from the moment of work to the acknowledged result.

Used by the actor's loop only, on its one thread.  It promises that a lease stays listed until the
coordinator has acknowledged its result, and that what was not acknowledged can be said again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import msgspec

from protocol.messages import Answered, Lease, Reserve, Result, Returned, Running
from protocol.values import Call


@dataclass(kw_only=True)
class Holding:
    """One lease: its work under way, or its result waiting to be acknowledged."""

    lease: Lease
    result: Result | Returned | None = None
    unstored: list[Answered] = field(default_factory=list)
    asked: Reserve | None = None  # waits for `Reserved`
    lost: int = 0  # the call that failed last and may have been paid for
    lost_call: Call | None = None  # what is known of it
    running: bool = False  # candidate code runs: must be said again to a new coordinator
    gone: bool = False  # the lease is somebody else's: no result of ours is wanted
    stop: threading.Event = field(default_factory=threading.Event)
    stored: threading.Condition = field(default_factory=threading.Condition)


class Held:
    """All leases of one worker, by work."""

    def __init__(self) -> None:
        self._holdings: dict[str, Holding] = {}

    def __len__(self) -> int:
        return len(self._holdings)

    def leases(self) -> tuple[Lease, ...]:
        """Return what a heartbeat lists."""
        return tuple(holding.lease for holding in self._holdings.values())

    def take(self, lease: Lease) -> Holding | None:
        """Take a new lease; return its holding, or None when that work is already here."""
        known = self._holdings.get(lease.work)
        if known is None:
            holding = self._holdings[lease.work] = Holding(lease=lease)
            return holding
        if lease.epoch > known.lease.epoch:
            # Granted anew to us, who still work on it: what we say from now on carries this epoch.
            known.lease = lease
            known.result = _with_lease(known.result, lease)
            with known.stored:
                known.unstored = [msgspec.structs.replace(a, lease=lease) for a in known.unstored]
                if known.asked is not None:
                    known.asked = msgspec.structs.replace(known.asked, lease=lease)
            known.gone = False
        return None

    def get(self, work: str) -> Holding | None:
        """Return the holding of `work`, if it is held."""
        return self._holdings.get(work)

    def finish(self, work: str, result: Result | Returned) -> Result | Returned | None:
        """Keep a finished result until it is acknowledged; None when its lease is gone."""
        holding = self._holdings.get(work)
        if holding is None:
            return None
        if holding.gone:
            del self._holdings[work]
            return None
        if isinstance(result, Returned):
            result = msgspec.structs.replace(result, lost=holding.lost, lost_call=holding.lost_call)
        holding.result = _with_lease(result, holding.lease)
        return holding.result

    def forget(self, lease: Lease) -> None:
        """Drop what the coordinator has acknowledged."""
        holding = self._holdings.get(lease.work)
        if holding is not None and holding.lease.epoch <= lease.epoch:
            del self._holdings[lease.work]

    def revoke(self, lease: Lease) -> None:
        """Stop work that is no longer ours; a finished result is dropped."""
        holding = self._holdings.get(lease.work)
        if holding is None or holding.lease.epoch > lease.epoch:
            return
        holding.gone = True
        self._stop(holding)
        if holding.result is not None:
            del self._holdings[lease.work]

    def stop_all(self) -> None:
        """Ask all work to stop soon; results still count."""
        for holding in self._holdings.values():
            if holding.result is None:
                self._stop(holding)

    def _stop(self, holding: Holding) -> None:
        holding.stop.set()
        with holding.stored:
            holding.stored.notify_all()

    def unfinished(self) -> tuple[Lease, ...]:
        """Return the leases that have no result yet."""
        return tuple(h.lease for h in self._holdings.values() if h.result is None and not h.gone)

    def unacknowledged(self) -> list[Result | Returned | Answered | Running | Reserve]:
        """Return all that must be said again, in the order in which it was first said."""
        again: list[Result | Returned | Answered | Running | Reserve] = []
        for holding in self._holdings.values():
            if holding.running and holding.result is None:
                again.append(Running(lease=holding.lease))
            with holding.stored:
                again.extend(holding.unstored)
                if holding.asked is not None:
                    again.append(holding.asked)
            if holding.result is not None:
                again.append(holding.result)
        return again


def _with_lease(result: Result | Returned | None, lease: Lease) -> Result | Returned | None:
    return None if result is None else msgspec.structs.replace(result, lease=lease)
