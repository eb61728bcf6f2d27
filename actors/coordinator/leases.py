"""All leases that are held: by work, by holder, under epochs that only grow.  Pure.

It promises that a piece of work has one holder at a time, and that only the holder of the present
lease is taken for it.
"""

from __future__ import annotations

from collections import defaultdict

from actors.coordinator.grants import Grant
from actors.coordinator.peers import Peer
from protocol.messages import Lease


class Leases:
    """The grants of one run."""

    def __init__(self, *, lease_s: float, epoch: int) -> None:
        self.lease_s = lease_s
        self.grants: dict[str, Grant] = {}  # by work
        self._epoch = epoch  # of the last lease granted; only ever grows
        self._held: defaultdict[str, set[str]] = defaultdict(set)  # incarnation -> granted works

    def grant(self, work: str, peer: Peer, now: float) -> Grant:
        """Lease work to a peer under a new epoch."""
        self._epoch += 1
        grant = Grant(
            work=work,
            role=peer.role,
            slot=peer.slot,
            incarnation=peer.incarnation,
            epoch=self._epoch,
            expires=now + self.lease_s,
        )
        self.take_up(grant)
        return grant

    def take_up(self, grant: Grant) -> None:
        """Note a lease, also one that an earlier coordinator granted."""
        self.grants[grant.work] = grant
        self._held[grant.incarnation].add(grant.work)

    def of(self, lease: Lease, incarnation: str) -> Grant | None:
        """Return the present grant under that lease, if it is that peer's; None: not any more."""
        grant = self.grants.get(lease.work)
        if grant is None or (grant.epoch, grant.incarnation) != (lease.epoch, incarnation):
            return None
        return grant

    def renewed(self, lease: Lease, incarnation: str, now: float) -> bool:
        """Give a lease its whole time again; False where it is not that peer's any more."""
        grant = self.of(lease, incarnation)
        if grant is None:
            return False
        grant.expires = now + self.lease_s
        grant.missed = 0
        return True

    def held_by(self, incarnation: str) -> list[Grant]:
        """Return the leases of one incarnation, the oldest first."""
        works = self._held.get(incarnation, set())
        return sorted((self.grants[work] for work in works), key=lambda grant: grant.epoch)

    def late(self, now: float) -> list[Grant]:
        """Return the leases whose time is over."""
        return [grant for grant in self.grants.values() if grant.expires <= now]

    def free(self, grant: Grant) -> None:
        """End a lease."""
        del self.grants[grant.work]
        held = self._held[grant.incarnation]
        held.discard(grant.work)
        if not held:
            del self._held[grant.incarnation]
