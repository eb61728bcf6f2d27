"""Who works at a run and what they do: the fleet's processes with the ledger's words."""

from __future__ import annotations

from collections.abc import Mapping

from actors.supervisor.fleet import Place
from actors.supervisor.snapshot import Snapshot, WorkerState
from protocol.values import WORKERS, Value


class Member(Value, frozen=True, kw_only=True):
    """One supervised place."""

    slot: str
    state: str  # "up", "waits to start", "ended"
    pid: int | None
    restarts: int
    doing: str
    seconds: float | None  # how long it has been doing that
    cause: str = ""  # how the one before ended, or why its device is quarantined
    leases: int = 0
    rtt_ms: float | None = None  # from a heartbeat to the coordinator's answer
    quarantined: bool = False  # its device


def members(
    places: Mapping[str, Place], snapshot: Snapshot, wall: float, now: float
) -> tuple[Member, ...]:
    """Return our places in the order of starting, then the workers of other machines.

    `wall` is the time of day, `now` monotonic.
    """
    known = {worker.slot: worker for worker in snapshot.workers}
    rows = []
    for slot, place in places.items():
        worker = known.get(slot)
        up = place.child is not None
        doing = worker.doing if up and worker is not None and worker.state == "up" else ""
        rows.append(
            Member(
                slot=slot,
                state="up" if up else "waits to start" if place.due is not None else "ended",
                pid=place.child.pid if place.child else None,
                restarts=max(0, place.starts - 1),
                doing=doing or _waiting(place, now),
                seconds=max(0.0, wall - worker.since) if doing and worker else None,
                cause=(worker.quarantine if worker else "") or place.cause,
                leases=worker.leases if worker else 0,
                rtt_ms=worker.rtt_ms if worker else None,
                quarantined=bool(worker and worker.quarantine),
            )
        )
    rows += [
        _elsewhere(worker, wall)
        for slot, worker in known.items()
        if slot not in places and worker.role in WORKERS and worker.state != "lost"
    ]
    return tuple(rows)


def _elsewhere(worker: WorkerState, wall: float) -> Member:
    return Member(
        slot=worker.slot,
        state=worker.state,
        pid=None,
        restarts=max(0, worker.starts - 1),
        doing=worker.doing,
        seconds=max(0.0, wall - worker.since),
        cause=worker.quarantine or worker.how,
        leases=worker.leases,
        rtt_ms=worker.rtt_ms,
        quarantined=bool(worker.quarantine),
    )


def _waiting(place: Place, now: float) -> str:
    if place.due is not None:
        return f"starts again in {max(0.0, place.due - now):.1f} s"
    return ""
