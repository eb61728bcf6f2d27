"""The interface between a worker and its actor: the role's work, and its reports while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from actors.held_leases import HeldLease
from actors.log import FilteringBoundLogger
from protocol.messages import (
    CallCompleted,
    CallsBlocked,
    CandidateRunning,
    HandedBack,
    ReserveBudget,
    Result,
    Work,
)
from protocol.values import Call, Device, Role


class WorkerUnfitError(Exception):
    """The worker's machine fails, not its work: whatever the worker holds is handed back."""


class EvaluationContext(Protocol):
    """The reports of a piece of work while it runs: the part that an evaluation uses."""

    def set_activity(self, text: str) -> None:
        """Report for people what is under way."""

    def log_step(self, event: str, **fields: object) -> None:
        """Write one line about a step that is over into the actor's log."""

    def candidate_running(self) -> None:
        """Report that candidate code runs from now on: a loss is charged to the candidate."""

    def is_revoked(self) -> bool:
        """Whether the work is to stop soon: its lease is revoked, or the actor drains."""
        ...


class WorkContext(EvaluationContext, Protocol):
    """All reports of a leased piece of work: an agent's model calls, too."""

    def call_completed(self, call: Call) -> None:
        """Hand over a reply; return when it is stored, or when the work is to stop."""

    def reserve_budget(self, model: str, request: str, usd: float | None) -> bool:
        """Reserve the money for one call, and wait for it; False when the work is to stop."""
        ...

    def call_lost(self, partial: Call | None = None) -> None:
        """Report that the call that was reserved last failed, and may have been paid for.

        `partial`: its tokens and dollars as far as the server sent them; None: none are known.
        """


class Worker(Protocol):
    """The work of a role."""

    role: Role
    credit: int
    device: Device | None

    def work(self, request: Work, context: WorkContext) -> Result | CallsBlocked | HandedBack:
        """Do one piece of work, in a thread of its own."""
        ...

    def close(self) -> None:
        """End every child process; called once, also when the supervisor is gone."""


@dataclass(frozen=True)
class WorkDone:
    """The end of a piece of work, reported by its thread."""

    work: str
    result: Result | CallsBlocked | HandedBack


class LeaseContext:
    """The `WorkContext` of one lease: thread-safe, reports through the actor's queue."""

    def __init__(
        self,
        held_lease: HeldLease,
        report: Callable[[object], None],
        call_numbers: Iterator[int],
        log: FilteringBoundLogger,
    ) -> None:
        self._log = log  # with the name of the work
        self._held_lease = held_lease
        self._report = report
        self._call_numbers = call_numbers  # of all calls of the process
        self._call_number = 0

    def set_activity(self, text: str) -> None:
        self._log.info(text)
        self._report(text)

    def log_step(self, event: str, **fields: object) -> None:
        self._log.info(event, **{key: value for key, value in fields.items() if value is not None})

    def candidate_running(self) -> None:
        self._report(CandidateRunning(lease=self._held_lease.lease))

    def call_completed(self, call: Call) -> None:
        message = CallCompleted(lease=self._held_lease.lease, call=call)
        stored = self._held_lease.call_stored
        with stored:
            self._held_lease.unstored_calls.append(message)
            self._report(message)
            stored.wait_for(lambda: not self._held_lease.unstored_calls or self.is_revoked())

    def reserve_budget(self, model: str, request: str, usd: float | None) -> bool:
        held_lease = self._held_lease
        self._call_number = next(self._call_numbers)
        with held_lease.call_stored:
            held_lease.pending_reservation = ReserveBudget(
                lease=held_lease.lease,
                call_number=self._call_number,
                model=model,
                request_key=request,
                usd=usd,
                lost_call_number=held_lease.lost_call_number,
                lost_call=held_lease.lost_call,
            )
            self._report(held_lease.pending_reservation)
            held_lease.call_stored.wait_for(
                lambda: held_lease.pending_reservation is None or self.is_revoked()
            )
            granted = held_lease.pending_reservation is None
            held_lease.pending_reservation = None
        return granted and not self.is_revoked()

    def call_lost(self, partial: Call | None = None) -> None:
        self._held_lease.lost_call_number = self._call_number
        self._held_lease.lost_call = partial

    def is_revoked(self) -> bool:
        return self._held_lease.stop_requested.is_set()


class StandaloneContext:
    """The context of an evaluation outside of a run: it reports nothing and is never revoked."""

    def set_activity(self, text: str) -> None:
        """Report nothing."""

    def log_step(self, event: str, **fields: object) -> None:
        """Log nothing."""

    def candidate_running(self) -> None:
        """Report nothing."""

    def is_revoked(self) -> bool:
        """Return False."""
        return False


STANDALONE = StandaloneContext()
