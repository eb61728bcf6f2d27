"""What each worker of a run does: the processes of this machine, with what `run.db` says."""

from __future__ import annotations

from collections.abc import Mapping

from actors.supervisor.processes.process_tree import Supervised
from actors.supervisor.reporting.snapshot import Snapshot, WorkerState
from protocol.values import WORKER_ROLES, Value


class WorkerStatus(Value, frozen=True, kw_only=True):
    """One slot, of this machine or of another one."""

    slot: str
    state: str  # "up", "waits to start", "ended"
    pid: int | None
    restarts: int
    activity: str
    seconds: float | None  # since the activity began
    cause: str = ""  # how the former process ended, or why its device is quarantined
    leases: int = 0
    rtt_ms: float | None = None  # from a heartbeat to the coordinator's answer
    is_quarantined: bool = False  # its device


def worker_statuses(
    slots: Mapping[str, Supervised], snapshot: Snapshot, wall: float, now: float
) -> tuple[WorkerStatus, ...]:
    """Return this machine's slots in the order of starting, then the workers of other machines.

    `wall` is the time of day, `now` is monotonic.
    """
    known = {worker.slot: worker for worker in snapshot.workers}
    rows = []
    for slot, supervised in slots.items():
        worker = known.get(slot)
        up = supervised.child is not None
        doing = worker.doing if up and worker is not None and worker.state == "up" else ""
        rows.append(
            WorkerStatus(
                slot=slot,
                state="up"
                if up
                else "waits to start"
                if supervised.due_at is not None
                else "ended",
                pid=supervised.child.pid if supervised.child else None,
                restarts=max(0, supervised.starts - 1),
                activity=doing or _waiting(supervised, now),
                seconds=max(0.0, wall - worker.since) if doing and worker else None,
                cause=(worker.quarantine if worker else "") or supervised.cause,
                leases=worker.leases if worker else 0,
                rtt_ms=worker.rtt_ms if worker else None,
                is_quarantined=bool(worker and worker.quarantine),
            )
        )
    rows += [
        _on_other_machine(worker, wall)
        for slot, worker in known.items()
        if slot not in slots and worker.role in WORKER_ROLES and worker.state != "lost"
    ]
    return tuple(rows)


def _on_other_machine(worker: WorkerState, wall: float) -> WorkerStatus:
    return WorkerStatus(
        slot=worker.slot,
        state=worker.state,
        pid=None,
        restarts=max(0, worker.starts - 1),
        activity=worker.doing,
        seconds=max(0.0, wall - worker.since),
        cause=worker.quarantine or worker.how,
        leases=worker.leases,
        rtt_ms=worker.rtt_ms,
        is_quarantined=bool(worker.quarantine),
    )


def _waiting(supervised: Supervised, now: float) -> str:
    if supervised.due_at is not None:
        return f"starts again in {max(0.0, supervised.due_at - now):.1f} s"
    return ""
