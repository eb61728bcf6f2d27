"""What each worker of a run does: the processes of this machine, with what `run.db` says."""

from __future__ import annotations

from collections.abc import Mapping

from actors.supervisor.processes.process_tree import SupervisedSlot
from actors.supervisor.reporting.run_data.snapshot import Snapshot, WorkerState
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
    slots: Mapping[str, SupervisedSlot], snapshot: Snapshot, wall: float, now: float
) -> tuple[WorkerStatus, ...]:
    """Return this machine's slots in the order of starting, then the workers of other machines.

    `wall` is the time of day, `now` is monotonic.
    """
    known = {worker.slot: worker for worker in snapshot.workers}
    rows = []
    for name, slot in slots.items():
        worker = known.get(name)
        up = slot.child is not None
        doing = worker.doing if worker is not None and _is_about(worker, slot) else ""
        rows.append(
            WorkerStatus(
                slot=name,
                state="up" if up else "waits to start" if slot.due_at is not None else "ended",
                pid=slot.child.pid if slot.child else None,
                restarts=max(0, slot.starts - 1),
                activity=doing or _waiting(slot, now),
                seconds=max(0.0, wall - worker.since) if doing and worker else None,
                cause=(worker.quarantine if worker else "") or slot.cause,
                leases=worker.leases if worker else 0,
                rtt_ms=worker.rtt_ms if worker else None,
                is_quarantined=bool(worker and worker.quarantine),
            )
        )
    rows += [
        _on_other_machine(worker, wall)
        for name, worker in known.items()
        if name not in slots and worker.role in WORKER_ROLES and worker.state != "lost"
    ]
    return tuple(rows)


def _is_about(worker: WorkerState, slot: SupervisedSlot) -> bool:
    """Whether the coordinator speaks of the process that lives in the slot, and not of a former."""
    child = slot.child
    return child is not None and worker.state == "up" and worker.incarnation == child.incarnation


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


def _waiting(slot: SupervisedSlot, now: float) -> str:
    if slot.due_at is not None:
        return f"starts again in {max(0.0, slot.due_at - now):.1f} s"
    return ""
