"""The health of the fleet: answers to heartbeats, round-trip times, who fell silent.

Driven by the coordinator's shell, beside the fleet's own rules.  It promises that a supervisor is
told of a silent process only after it was itself heard of for a lease's time: when a network
comes back, the workers behind it get as long to say something as they would have had.
"""

from __future__ import annotations

from dataclasses import dataclass

from actors.coordinator.books import Books
from actors.coordinator.fleet import Fleet
from actors.coordinator.origin import machine_of
from actors.coordinator.peers import Peer
from protocol.messages import Beat, Heard
from protocol.values import WORKERS, Role

WRITE_S = 1.0  # a figure for people need not be newer than that
SLICE = 500  # workers whose row may change at a time
RTT_STEP = 0.2  # a round-trip time is written again when it changed by this share


@dataclass(frozen=True)
class Figures:
    """What the worker table says of one slot."""

    leases: int = 0
    rtt_ms: float | None = None

    def differ(self, other: Figures) -> bool:
        """Whether people should see `other` instead."""
        if self.leases != other.leases or self.rtt_ms is None or other.rtt_ms is None:
            return self != other
        return abs(self.rtt_ms - other.rtt_ms) > RTT_STEP * self.rtt_ms


class Health:
    """What the heartbeats say besides the leases."""

    def __init__(self, fleet: Fleet, books: Books) -> None:
        self._fleet = fleet
        self._books = books
        self._rtt_ms: dict[str, float] = {}  # by incarnation
        self._written: dict[str, Figures] = {}  # by incarnation: a row of the dead is cleared
        self._next_write = 0.0
        self._turn: list[str] = []  # those whose turn it still is

    def answer(self, peer: Peer, beat: Beat, now: float) -> Heard | None:
        """Note a heartbeat's figures; return the answer, if it wants one."""
        if beat.rtt_ms is not None:
            self._rtt_ms[peer.incarnation] = beat.rtt_ms
        if not beat.sent:
            return None
        return Heard(sent=beat.sent, silent=self._silent_for(peer, now))

    def write(self, now: float) -> None:
        """Put what changed into the worker table, once a second, a part of a large fleet at a time.

        What a person reads may be older there: nobody's lease waits for a thousand rows.
        """
        if now < self._next_write:
            return
        self._next_write = now + WRITE_S
        peers = self._fleet.peers
        if not self._turn:
            self._turn = list(peers)
            self._rtt_ms = {name: rtt for name, rtt in self._rtt_ms.items() if name in peers}
            self._written = {name: old for name, old in self._written.items() if name in peers}
        slice_, self._turn = self._turn[:SLICE], self._turn[SLICE:]
        for peer in filter(None, map(peers.get, slice_)):
            new = Figures(len(peer.leases), self._rtt_ms.get(peer.incarnation))
            if self._written.get(peer.incarnation, Figures()).differ(new):
                self._written[peer.incarnation] = new
                self._books.worker_health(peer.slot, new.leases, new.rtt_ms)

    def _silent_for(self, peer: Peer, now: float) -> tuple[str, ...]:
        if peer.role is not Role.SUPERVISOR or now - peer.since < self._fleet.lease_s:
            return ()
        here = machine_of(peer.slot)  # the others are other supervisors' business
        return tuple(
            name
            for name, one in self._fleet.silent.items()
            if one.role in WORKERS and machine_of(one.slot) == here
        )
