"""The leases that a worker holds, from the start of the work to the acknowledged result.

Only the actor's loop uses it, on its one thread.  It promises that a lease stays listed until the
coordinator has acknowledged its result, and that every unacknowledged message can be sent again.
"""

from __future__ import annotations

import threading
import time
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
from protocol.values import Call, request_key


@dataclass(kw_only=True)
class HeldLease:
    """One lease with work under way, or with a result that is not acknowledged yet."""

    lease: Lease
    began: float = field(default_factory=time.monotonic)
    result: Result | HandedBack | None = None
    unstored_calls: list[CallCompleted] = field(default_factory=list)
    pending_reservation: ReserveBudget | None = None  # waits for `BudgetReserved`
    lost_call_number: int = 0  # the call that failed last and may have been paid for
    lost_call: Call | None = None  # the part of that call's reply that arrived
    running: bool = False  # candidate code runs; a new coordinator must be told again
    is_revoked: bool = False  # another worker holds the lease: no result is wanted
    stop_requested: threading.Event = field(default_factory=threading.Event)
    call_stored: threading.Condition = field(default_factory=threading.Condition)

    def call_is_stored(self, key: str) -> None:
        """Drop the call whose request has that key; all of them where the key is "".

        Another call stays: the coordinator also acknowledges messages that were sent twice.
        """
        self.unstored_calls = [
            one for one in self.unstored_calls if key not in ("", request_key(one.call.request))
        ]


class HeldLeases:
    """All leases of one worker, by work."""

    def __init__(self) -> None:
        self._leases_by_work: dict[str, HeldLease] = {}

    def __len__(self) -> int:
        return len(self._leases_by_work)

    def leases(self) -> tuple[Lease, ...]:
        """Return the leases that a heartbeat lists."""
        return tuple(held_lease.lease for held_lease in self._leases_by_work.values())

    def add(self, lease: Lease) -> HeldLease | None:
        """Add a lease; None when its work is already under way here.

        A new lease for work under way has a newer epoch, which later messages must carry.
        """
        known = self._leases_by_work.get(lease.work)
        if known is None:
            held_lease = self._leases_by_work[lease.work] = HeldLease(lease=lease)
            return held_lease
        if lease.epoch > known.lease.epoch:
            known.lease = lease
            known.result = _with_lease(known.result, lease)
            with known.call_stored:
                known.unstored_calls = [
                    msgspec.structs.replace(one, lease=lease) for one in known.unstored_calls
                ]
                if known.pending_reservation is not None:
                    known.pending_reservation = msgspec.structs.replace(
                        known.pending_reservation, lease=lease
                    )
            known.is_revoked = False
        return None

    def get(self, work: str) -> HeldLease | None:
        """Return the held lease of `work`, if there is one."""
        return self._leases_by_work.get(work)

    def is_under_way(self, work: str) -> bool:
        """Whether `work` is held and has no result yet."""
        held_lease = self._leases_by_work.get(work)
        return held_lease is not None and held_lease.result is None

    def set_result(self, work: str, result: Result | HandedBack) -> Result | HandedBack | None:
        """Keep a finished result until it is acknowledged; None when its lease was revoked."""
        held_lease = self._leases_by_work.get(work)
        if held_lease is None:
            return None
        if held_lease.is_revoked:
            del self._leases_by_work[work]
            return None
        if isinstance(result, HandedBack):
            result = msgspec.structs.replace(
                result,
                lost_call_number=held_lease.lost_call_number,
                lost_call=held_lease.lost_call,
            )
        held_lease.result = _with_lease(result, held_lease.lease)
        return held_lease.result

    def acknowledge(self, lease: Lease) -> None:
        """Drop a lease whose result the coordinator has acknowledged."""
        held_lease = self._leases_by_work.get(lease.work)
        if held_lease is not None and held_lease.lease.epoch <= lease.epoch:
            del self._leases_by_work[lease.work]

    def revoke(self, lease: Lease) -> None:
        """Stop the work of a lease that is no longer held; drop a finished result."""
        held_lease = self._leases_by_work.get(lease.work)
        if held_lease is None or held_lease.lease.epoch > lease.epoch:
            return
        held_lease.is_revoked = True
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
            one.lease
            for one in self._leases_by_work.values()
            if one.result is None and not one.is_revoked
        )

    def messages_to_resend(
        self,
    ) -> list[Result | HandedBack | CallCompleted | CandidateRunning | ReserveBudget]:
        """Return the unacknowledged messages, in the order in which they were first sent."""
        found: list[Result | HandedBack | CallCompleted | CandidateRunning | ReserveBudget] = []
        for held_lease in self._leases_by_work.values():
            if held_lease.running and held_lease.result is None:
                found.append(CandidateRunning(lease=held_lease.lease))
            with held_lease.call_stored:
                found.extend(held_lease.unstored_calls)
                if held_lease.pending_reservation is not None:
                    found.append(held_lease.pending_reservation)
            if held_lease.result is not None:
                found.append(held_lease.result)
        return found


def _with_lease(result: Result | HandedBack | None, lease: Lease) -> Result | HandedBack | None:
    return None if result is None else msgspec.structs.replace(result, lease=lease)
