"""All leases that are held: by work, by holder, under epochs that only grow.  Pure.

It promises that a piece of work has one holder at a time, and that only the holder of the present
lease can end it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from actors.coordinator.scheduling.workers import Peer
from protocol.messages import Lease
from protocol.values import Role


@dataclass(slots=True)
class GrantedLease:
    """One lease: the work, its holder, the epoch and the expiry."""

    work: str
    role: Role
    slot: str
    incarnation: str
    epoch: int
    expires_at: float
    candidate_running: bool = False
    missed_heartbeats: int = 0

    @property
    def lease(self) -> Lease:
        return Lease(work=self.work, epoch=self.epoch)


@dataclass(frozen=True)
class LeaseEnd:
    """The end of a lease without a result."""

    granted: GrantedLease
    # "lost", "cut", "expired", "silent", "missed", "returned", "dismissed", "preempted"
    outcome: str
    exhausted: bool = False  # too many losses or failed tries: the work is not leased again


class LeaseTable:
    """The granted leases of one run."""

    def __init__(self, *, lease_s: float, epoch: int) -> None:
        self.lease_s = lease_s
        self.grants: dict[str, GrantedLease] = {}  # by work
        self._epoch = epoch  # of the last lease granted; only ever grows
        self._held: defaultdict[str, set[str]] = defaultdict(set)  # incarnation -> granted works

    def grant(self, work: str, peer: Peer, now: float) -> GrantedLease:
        """Lease work to a peer under a new epoch."""
        self._epoch += 1
        granted = GrantedLease(
            work=work,
            role=peer.role,
            slot=peer.slot,
            incarnation=peer.incarnation,
            epoch=self._epoch,
            expires_at=now + self.lease_s,
        )
        self.restore(granted)
        return granted

    def restore(self, granted: GrantedLease) -> None:
        """Record a lease, also one that an earlier coordinator granted."""
        self.grants[granted.work] = granted
        self._held[granted.incarnation].add(granted.work)

    def held(self, lease: Lease, incarnation: str) -> GrantedLease | None:
        """Return the present grant under that lease; None when that peer does not hold it now."""
        granted = self.grants.get(lease.work)
        if granted is None or (granted.epoch, granted.incarnation) != (lease.epoch, incarnation):
            return None
        return granted

    def renew(self, lease: Lease, incarnation: str, now: float) -> bool:
        """Give a lease its whole time again; False when that peer does not hold it now."""
        granted = self.held(lease, incarnation)
        if granted is None:
            return False
        granted.expires_at = now + self.lease_s
        granted.missed_heartbeats = 0
        return True

    def held_by(self, incarnation: str) -> list[GrantedLease]:
        """Return the leases of one incarnation, the oldest first."""
        works = self._held.get(incarnation, set())
        return sorted((self.grants[work] for work in works), key=lambda grant: grant.epoch)

    def expired(self, now: float) -> list[GrantedLease]:
        """Return the leases whose time is over."""
        return [grant for grant in self.grants.values() if grant.expires_at <= now]

    def release(self, granted: GrantedLease) -> None:
        """End a lease."""
        del self.grants[granted.work]
        held = self._held[granted.incarnation]
        held.discard(granted.work)
        if not held:
            del self._held[granted.incarnation]
