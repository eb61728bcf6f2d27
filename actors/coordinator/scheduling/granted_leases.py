"""Leases as the fleet keeps them: what work asks for, who holds it, how it ended unfinished."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.messages import Lease
from protocol.values import Role


@dataclass(frozen=True)
class Placement:
    """What work asks of a peer besides the role."""

    kind: str = ""  # the fingerprint of a device; "": any
    trusted: bool = False  # on the run's own machine, as long as somebody there can do it


ANY_WORKER = Placement()


@dataclass(slots=True)
class GrantedLease:
    """One lease: who holds which work, under which epoch, until when."""

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
    """A lease that ended without a result."""

    granted: GrantedLease
    outcome: str  # "lost", "cut", "expired", "silent", "missed", "returned", "dismissed"
    exhausted: bool = False  # too many were lost while this candidate ran, or could not do it
