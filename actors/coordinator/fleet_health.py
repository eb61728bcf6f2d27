"""The health of the fleet: answers to heartbeats, round-trip times, silent processes.

The coordinator's shell calls it; the scheduler's rules do not depend on it.  It promises that a
silent worker is reported to its supervisor only after the supervisor itself has been connected for
one lease time, so that workers get a full lease to reconnect after a partition.
"""

from __future__ import annotations

from dataclasses import dataclass

from actors.coordinator.scheduling.scheduler import Scheduler
from actors.coordinator.scheduling.workers import Peer, machine_of
from actors.coordinator.storage.activity_store import ActivityStore
from protocol.messages import Heartbeat, HeartbeatAck
from protocol.values import WORKER_ROLES, Role

WRITE_S = 1.0  # figures for people are written this often
WORKERS_PER_WRITE = 500  # rows that may change at a time
RTT_STEP = 0.2  # a round-trip time is written again when it has changed by this share


@dataclass(frozen=True)
class WorkerStats:
    """The figures of one slot in the worker table."""

    leases: int = 0
    rtt_ms: float | None = None

    def differs_visibly(self, other: WorkerStats) -> bool:
        """Whether people should see `other` instead."""
        if self.leases != other.leases or self.rtt_ms is None or other.rtt_ms is None:
            return self != other
        return abs(self.rtt_ms - other.rtt_ms) > RTT_STEP * self.rtt_ms


class FleetHealth:
    """The part of the heartbeats that is not about leases."""

    def __init__(self, scheduler: Scheduler, activity: ActivityStore) -> None:
        self._scheduler = scheduler
        self._activity = activity
        self._rtt_ms: dict[str, float] = {}  # by incarnation
        self._written: dict[str, WorkerStats] = {}  # by incarnation: a row of the dead is cleared
        self._next_write = 0.0
        self._unwritten: list[str] = []  # incarnations still to write in this pass over the fleet

    def acknowledge(self, peer: Peer, heartbeat: Heartbeat, now: float) -> HeartbeatAck | None:
        """Note a heartbeat's figures; return the answer, if it wants one."""
        if heartbeat.rtt_ms is not None:
            self._rtt_ms[peer.incarnation] = heartbeat.rtt_ms
        if not heartbeat.sent_at:
            return None
        return HeartbeatAck(
            sent_at=heartbeat.sent_at, silent_incarnations=self._silent_for(peer, now)
        )

    def write_stats(self, now: float) -> None:
        """Write changed figures to the worker table, once a second, a part of a large fleet at a
        time: no lease waits for a thousand rows.
        """
        if now < self._next_write:
            return
        self._next_write = now + WRITE_S
        peers = self._scheduler.peers
        if not self._unwritten:
            self._unwritten = list(peers)
            self._rtt_ms = {name: rtt for name, rtt in self._rtt_ms.items() if name in peers}
            self._written = {name: old for name, old in self._written.items() if name in peers}
        batch = self._unwritten[:WORKERS_PER_WRITE]
        del self._unwritten[:WORKERS_PER_WRITE]
        for peer in filter(None, map(peers.get, batch)):
            new = WorkerStats(len(peer.leases), self._rtt_ms.get(peer.incarnation))
            if self._written.get(peer.incarnation, WorkerStats()).differs_visibly(new):
                self._written[peer.incarnation] = new
                self._activity.worker_health(peer.slot, new.leases, new.rtt_ms)

    def _silent_for(self, peer: Peer, now: float) -> tuple[str, ...]:
        if peer.role is not Role.SUPERVISOR or now - peer.connected_since < self._scheduler.lease_s:
            return ()
        here = machine_of(peer.slot)  # other machines have supervisors of their own
        return tuple(
            name
            for name, one in self._scheduler.silent.items()
            if one.role in WORKER_ROLES and machine_of(one.slot) == here
        )
