"""The peers of a run, their identities, and the least loaded peer of each role."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from protocol.values import Role, Value


class PeerIdentity(Value, frozen=True, kw_only=True):
    """The key that a peer's messages arrive under.

    A peer without a ticket came through the socket file, which only this user can open.
    """

    ticket: str = ""
    role: Role | None = None  # the role that the key is for; None: any
    is_revoked: bool = False  # the ticket has expired or was revoked since the peer connected

    @property
    def is_local(self) -> bool:
        return not self.ticket


LOCAL_PEER = PeerIdentity()


def machine_of(slot: str) -> str:
    """Return the machine's part of a slot: "gpu7-1f.5c2e1a"; "" for the run's own machine."""
    return slot.partition("@")[2]


@dataclass(slots=True)
class Peer:
    """One incarnation of a worker or supervisor."""

    incarnation: str
    slot: str
    role: Role
    credit: int
    last_heard: float
    connected_since: float  # start of the time in which it was never silent
    identity: PeerIdentity = LOCAL_PEER
    kind: str = ""  # its device's fingerprint
    paused_until: float = 0.0  # its device is quarantined: no leases before that
    number: int = 0  # in the order of arrival: of equally loaded peers the oldest comes first
    leases: set[str] = field(default_factory=set)
    background: set[str] = field(default_factory=set)  # those that give way to other work
    takes_background: bool = True  # its version knows such work
    idle_since: float | None = None  # as far as it was looked at since its last lease
    queued: set[int] = field(default_factory=set)  # the ranks under which it is in `LeastLoaded`
    task: str = ""  # of the work that it took last

    @property
    def load(self) -> int:
        """The number of leases that it holds, without those that give way."""
        return len(self.leases) - len(self.background)

    @property
    def rank(self) -> int:
        """Its place among the peers of its role: of two equal loads, background work counts."""
        return 2 * self.load + bool(self.background)


class LeastLoaded:
    """Peers of one role by their load, in steps that do not grow with the fleet.

    The queue may hold a peer under ranks that it had before; `pop` skips such entries.
    """

    def __init__(self, peers: Mapping[str, Peer]) -> None:
        """`peers`: all connected peers, by incarnation; peers missing there are skipped."""
        self._peers = peers
        self._queue: list[tuple[int, int, str]] = []

    def add(self, peer: Peer) -> None:
        """Queue a peer by its load, if its credit allows more work."""
        if peer.credit > peer.load and peer.rank not in peer.queued:
            peer.queued.add(peer.rank)
            heapq.heappush(self._queue, (peer.rank, peer.number, peer.incarnation))

    def pop(self) -> Peer | None:
        """Remove and return the least loaded peer with credit; None when there is none."""
        while self._queue:
            rank, _, incarnation = heapq.heappop(self._queue)
            peer = self._peers.get(incarnation)
            if peer is not None:
                peer.queued.discard(rank)
                if peer.rank == rank and peer.credit > peer.load:
                    return peer
        return None
