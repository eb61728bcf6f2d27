"""The leases that a worker holds, from the moment of work to the acknowledged result.

Used by the actor's loop only, on its one thread.  It promises that a lease stays listed until the
coordinator has acknowledged its result, and that what was not acknowledged can be said again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import msgspec

from protocol.messages import (
    CallCompleted,
    CandidateRunning,
    HandedBack,
    Lease,
    ReserveBudget,
    Result,
)
from protocol.values import Call


@dataclass(kw_only=True)
class HeldLease:
    """One lease: its work under way, or its result waiting to be acknowledged."""

    lease: Lease
    result: Result | HandedBack | None = None
    unstored_call: list[CallCompleted] = field(default_factory=list)
    pending_reservation: ReserveBudget | None = None  # waits for `BudgetReserved`
    lost: int = 0  # the call that failed last and may have been paid for
    lost_call: Call | None = None  # what is known of it
    running: bool = False  # candidate code runs: must be said again to a new coordinator
    is_gone: bool = False  # the lease is somebody else's: no result of ours is wanted
    stop_requested: threading.Event = field(default_factory=threading.Event)
    call_stored: threading.Condition = field(default_factory=threading.Condition)


class HeldLeases:
    """All leases of one worker, by work."""

    def __init__(self) -> None:
        self._leases_by_work: dict[str, HeldLease] = {}

    def __len__(self) -> int:
        return len(self._leases_by_work)

    def leases(self) -> tuple[Lease, ...]:
        """Return what a heartbeat lists."""
        return tuple(holding.lease for holding in self._leases_by_work.values())

    def add(self, lease: Lease) -> HeldLease | None:
        """Take a new lease; return its holding, or None when that work is already here."""
        known = self._leases_by_work.get(lease.work)
        if known is None:
            held_lease = self._leases_by_work[lease.work] = HeldLease(lease=lease)
            return held_lease
        if lease.epoch > known.lease.epoch:
            # Granted anew to us, who still work on it: what we say from now on carries this epoch.
            known.lease = lease
            known.result = _with_lease(known.result, lease)
            with known.call_stored:
                known.unstored_call = [
                    msgspec.structs.replace(a, lease=lease) for a in known.unstored_call
                ]
                if known.pending_reservation is not None:
                    known.pending_reservation = msgspec.structs.replace(
                        known.pending_reservation, lease=lease
                    )
            known.is_gone = False
        return None

    def get(self, work: str) -> HeldLease | None:
        """Return the holding of `work`, if it is held."""
        return self._leases_by_work.get(work)

    def set_result(self, work: str, result: Result | HandedBack) -> Result | HandedBack | None:
        """Keep a finished result until it is acknowledged; None when its lease is gone."""
        held_lease = self._leases_by_work.get(work)
        if held_lease is None:
            return None
        if held_lease.is_gone:
            del self._leases_by_work[work]
            return None
        if isinstance(result, HandedBack):
            result = msgspec.structs.replace(
                result, lost_call_number=held_lease.lost, lost_call=held_lease.lost_call
            )
        held_lease.result = _with_lease(result, held_lease.lease)
        return held_lease.result

    def acknowledge(self, lease: Lease) -> None:
        """Drop what the coordinator has acknowledged."""
        held_lease = self._leases_by_work.get(lease.work)
        if held_lease is not None and held_lease.lease.epoch <= lease.epoch:
            del self._leases_by_work[lease.work]

    def revoke(self, lease: Lease) -> None:
        """Stop work that is no longer ours; a finished result is dropped."""
        held_lease = self._leases_by_work.get(lease.work)
        if held_lease is None or held_lease.lease.epoch > lease.epoch:
            return
        held_lease.is_gone = True
        self._stop(held_lease)
        if held_lease.result is not None:
            del self._leases_by_work[lease.work]

    def stop_all(self) -> None:
        """Ask all work to stop soon; results still count."""
        for held_lease in self._leases_by_work.values():
            if held_lease.result is None:
                self._stop(held_lease)

    def _stop(self, held_lease: HeldLease) -> None:
        held_lease.stop_requested.set()
        with held_lease.call_stored:
            held_lease.call_stored.notify_all()

    def unfinished(self) -> tuple[Lease, ...]:
        """Return the leases that have no result yet."""
        return tuple(
            h.lease for h in self._leases_by_work.values() if h.result is None and not h.is_gone
        )

    def messages_to_resend(
        self,
    ) -> list[Result | HandedBack | CallCompleted | CandidateRunning | ReserveBudget]:
        """Return all that must be said again, in the order in which it was first said."""
        again: list[Result | HandedBack | CallCompleted | CandidateRunning | ReserveBudget] = []
        for held_lease in self._leases_by_work.values():
            if held_lease.running and held_lease.result is None:
                again.append(CandidateRunning(lease=held_lease.lease))
            with held_lease.call_stored:
                again.extend(held_lease.unstored_call)
                if held_lease.pending_reservation is not None:
                    again.append(held_lease.pending_reservation)
            if held_lease.result is not None:
                again.append(held_lease.result)
        return again


def _with_lease(result: Result | HandedBack | None, lease: Lease) -> Result | HandedBack | None:
    return None if result is None else msgspec.structs.replace(result, lease=lease)
