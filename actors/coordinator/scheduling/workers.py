"""The peers of a run, and which of those that take more work has the least."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from actors.coordinator.scheduling.peer_identity import LOCAL_PEER, PeerIdentity
from protocol.values import Role


@dataclass(slots=True)
class Peer:
    """One incarnation of a worker."""

    incarnation: str
    slot: str
    role: Role
    credit: int
    last_heard: float
    connected_since: float  # it has been heard of without a gap since then
    identity: PeerIdentity = LOCAL_PEER
    kind: str = ""  # its device's fingerprint
    paused_until: float = 0.0  # its device is not well: no leases before that
    number: int = 0  # in the order of arrival: among equally loaded ones the eldest is asked
    leases: set[str] = field(default_factory=set)
    queued: set[int] = field(default_factory=set)  # loads under which it stands in the queue
    task: str = ""  # of the work that it took last

    @property
    def load(self) -> int:
        return len(self.leases)


class LeastLoaded:
    """Peers of one role by their load, in steps that do not grow with the fleet.

    A peer may stand in the queue under loads that it had before: that is seen when it is due.
    """

    def __init__(self, peers: Mapping[str, Peer]) -> None:
        """`peers`: all that there are, by incarnation; who is gone from it is not asked."""
        self._peers = peers
        self._queue: list[tuple[int, int, str]] = []

    def add(self, peer: Peer) -> None:
        """Queue a peer by its load, if it takes more."""
        if peer.credit > peer.load and peer.load not in peer.queued:
            peer.queued.add(peer.load)
            heapq.heappush(self._queue, (peer.load, peer.number, peer.incarnation))

    def pop(self) -> Peer | None:
        """Take the least loaded peer that takes more out of the queue; None: there is none."""
        while self._queue:
            load, _, incarnation = heapq.heappop(self._queue)
            peer = self._peers.get(incarnation)
            if peer is not None:
                peer.queued.discard(load)
                if peer.load == load and peer.credit > load:
                    return peer
        return None
