"""Between a worker and its actor: what a piece of work may say as it runs, and what a role is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from actors.held import Holding
from protocol.messages import Answered, Blocked, Reserve, Result, Returned, Running, Work
from protocol.values import Call, Device, Role


class Port(Protocol):
    """What a piece of work may say while it runs."""

    def doing(self, words: str) -> None:
        """Say for people what is under way."""

    def running(self) -> None:
        """Candidate code runs from here on: a loss is charged to the candidate."""

    def answered(self, call: Call) -> None:
        """Hand over a bought reply; return when it is stored (or the lease is gone)."""

    def reserve(self, model: str, request: str, usd: float | None) -> bool:
        """Ask for the money for one call; return once it is kept, False when it is not wanted."""
        ...

    def call_lost(self, heard: Call | None = None) -> None:
        """The call that was reserved last failed, and may have been paid for.

        `heard` holds its tokens and dollars as far as the server said them; None: nothing is known.
        """

    def revoked(self) -> bool:
        """Whether to stop soon: the lease is gone, or the actor drains."""
        ...


class Worker(Protocol):
    """What a role does with the work that it leases."""

    role: Role
    credit: int
    device: Device | None

    def work(self, request: Work, port: Port) -> Result | Blocked | Returned:
        """Do one piece of work, in a thread of its own."""
        ...

    def close(self) -> None:
        """End every child; called once, also when the supervisor is gone."""


@dataclass(frozen=True)
class Done:
    """A piece of work has ended, in its own thread."""

    work: str
    result: Result | Blocked | Returned


class LeasePort:
    """The `Port` of one lease: thread-safe, speaks through the actor's queue."""

    def __init__(
        self, holding: Holding, say: Callable[[object], None], numbers: Iterator[int]
    ) -> None:
        self._holding = holding
        self._say = say
        self._numbers = numbers  # of the process's calls
        self._number = 0

    def doing(self, words: str) -> None:
        self._say(words)

    def running(self) -> None:
        self._say(Running(lease=self._holding.lease))

    def answered(self, call: Call) -> None:
        said = Answered(lease=self._holding.lease, call=call)
        stored = self._holding.stored
        with stored:
            self._holding.unstored.append(said)
            self._say(said)
            stored.wait_for(lambda: not self._holding.unstored or self.revoked())

    def reserve(self, model: str, request: str, usd: float | None) -> bool:
        holding = self._holding
        self._number = next(self._numbers)
        with holding.stored:
            holding.asked = Reserve(
                lease=holding.lease,
                number=self._number,
                model=model,
                request=request,
                usd=usd,
                lost=holding.lost,
                lost_call=holding.lost_call,
            )
            self._say(holding.asked)
            holding.stored.wait_for(lambda: holding.asked is None or self.revoked())
            granted = holding.asked is None
            holding.asked = None
        return granted and not self.revoked()

    def call_lost(self, heard: Call | None = None) -> None:
        self._holding.lost, self._holding.lost_call = self._number, heard

    def revoked(self) -> bool:
        return self._holding.stop.is_set()
