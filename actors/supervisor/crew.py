"""Who works at a run and what they do: the fleet's processes with the ledger's words."""

from __future__ import annotations

from collections.abc import Mapping

from actors.supervisor.fleet import Place
from actors.supervisor.snapshot import Snapshot
from protocol.values import Value


class Member(Value, frozen=True, kw_only=True):
    """One supervised place."""

    slot: str
    state: str  # "up", "waits to start", "ended"
    pid: int | None
    restarts: int
    doing: str
    seconds: float | None  # how long it has been doing that


def members(
    places: Mapping[str, Place], snapshot: Snapshot, wall: float, now: float
) -> tuple[Member, ...]:
    """Return all places in the order of starting; `wall` is the time of day, `now` monotonic."""
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
            )
        )
    return tuple(rows)


def _waiting(place: Place, now: float) -> str:
    if place.due is not None:
        return f"starts again in {max(0.0, place.due - now):.1f} s"
    return ""
