"""Between a worker and its actor: what a piece of work may say as it runs, and what a role is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from actors.held_leases import HeldLease
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


class WorkContext(Protocol):
    """What a piece of work may say while it runs."""

    def set_activity(self, words: str) -> None:
        """Say for people what is under way."""

    def candidate_running(self) -> None:
        """Candidate code runs from here on: a loss is charged to the candidate."""

    def call_completed(self, call: Call) -> None:
        """Hand over a bought reply; return when it is stored (or the lease is gone)."""

    def reserve_budget(self, model: str, request: str, usd: float | None) -> bool:
        """Ask for the money for one call; return once it is kept, False when it is not wanted."""
        ...

    def call_lost(self, heard: Call | None = None) -> None:
        """The call that was reserved last failed, and may have been paid for.

        `heard` holds its tokens and dollars as far as the server said them; None: nothing is known.
        """

    def is_revoked(self) -> bool:
        """Whether to stop soon: the lease is gone, or the actor drains."""
        ...


class Worker(Protocol):
    """What a role does with the work that it leases."""

    role: Role
    credit: int
    device: Device | None

    def work(self, request: Work, context: WorkContext) -> Result | CallsBlocked | HandedBack:
        """Do one piece of work, in a thread of its own."""
        ...

    def close(self) -> None:
        """End every child; called once, also when the supervisor is gone."""


@dataclass(frozen=True)
class WorkDone:
    """A piece of work has ended, in its own thread."""

    work: str
    result: Result | CallsBlocked | HandedBack


class LeaseContext:
    """The `WorkContext` of one lease: thread-safe, speaks through the actor's queue."""

    def __init__(
        self, held_lease: HeldLease, report: Callable[[object], None], call_numbers: Iterator[int]
    ) -> None:
        self._held_lease = held_lease
        self._report = report
        self._call_numbers = call_numbers  # of the process's calls
        self._call_number = 0

    def set_activity(self, words: str) -> None:
        self._report(words)

    def candidate_running(self) -> None:
        self._report(CandidateRunning(lease=self._held_lease.lease))

    def call_completed(self, call: Call) -> None:
        said = CallCompleted(lease=self._held_lease.lease, call=call)
        stored = self._held_lease.call_stored
        with stored:
            self._held_lease.unstored_call.append(said)
            self._report(said)
            stored.wait_for(lambda: not self._held_lease.unstored_call or self.is_revoked())

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
                lost_call_number=held_lease.lost,
                lost_call=held_lease.lost_call,
            )
            self._report(held_lease.pending_reservation)
            held_lease.call_stored.wait_for(
                lambda: held_lease.pending_reservation is None or self.is_revoked()
            )
            granted = held_lease.pending_reservation is None
            held_lease.pending_reservation = None
        return granted and not self.is_revoked()

    def call_lost(self, heard: Call | None = None) -> None:
        self._held_lease.lost, self._held_lease.lost_call = self._call_number, heard

    def is_revoked(self) -> bool:
        return self._held_lease.stop_requested.is_set()


class EvaluationContext(Protocol):
    """The part of a `WorkContext` that an evaluation uses."""

    def set_activity(self, text: str) -> None:
        """Report for people what is under way."""

    def candidate_running(self) -> None:
        """Report that candidate code runs from now on: a loss is charged to the candidate."""

    def is_revoked(self) -> bool:
        """Whether the work is to stop soon."""
        ...


class StandaloneContext:
    """The context of an evaluation outside of a run: it reports nothing and is never revoked."""

    def set_activity(self, text: str) -> None:
        """Report nothing."""

    def candidate_running(self) -> None:
        """Report nothing."""

    def is_revoked(self) -> bool:
        """Return False."""
        return False


STANDALONE = StandaloneContext()
