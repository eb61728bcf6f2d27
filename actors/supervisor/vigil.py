"""Who hangs: processes that live and say nothing, or were stopped and not continued.

A dead child is noticed by its pidfd; a hung one only by its silence.  The coordinator tells which
workers it hears no more (their leases have moved on by then), and is itself asked at every beat.
Used by the supervision loop, which kills what is named here; the restart then follows by itself.
"""

from __future__ import annotations

from actors.supervisor import proc
from actors.supervisor.children import Child
from actors.supervisor.fleet import Fleet
from actors.supervisor.link import Link
from actors.supervisor.spec import COORDINATOR

LOOK_S = 1.0
LEASE_S = 15.0
# Of a lease's time: whoever is continued before has lost nothing but the lease.
STOPPED = 4 / 3


class Vigil:
    """Looks after the living."""

    def __init__(self, fleet: Fleet, link: Link, lease_s: float = LEASE_S) -> None:
        self._fleet = fleet
        self._link = link
        self._stopped_s = STOPPED * lease_s
        self._next_look = 0.0
        self._stopped: dict[str, float] = {}  # incarnation -> seen stopped since
        self._named: set[str] = set()  # said once; it may take a moment to die

    def hung(self, now: float) -> list[tuple[Child, str]]:
        """Return the children that hang, each once, and what is wrong in words."""
        if now < self._next_look:
            return []
        self._next_look = now + LOOK_S
        living = self._fleet.living
        self._named &= {child.incarnation for child in living}
        self._note_stopped(living, now)
        found = [(child, self._why(child, now)) for child in living]
        found = [(child, why) for child, why in found if why]
        self._named |= {child.incarnation for child, _ in found}
        return found

    def _note_stopped(self, living: list[Child], now: float) -> None:
        stopped = [child.incarnation for child in living if proc.is_stopped(child.pid)]
        self._stopped = {name: self._stopped.get(name, now) for name in stopped}

    def _why(self, child: Child, now: float) -> str:
        if child.incarnation in self._named:
            return ""
        if now - self._stopped.get(child.incarnation, now) >= self._stopped_s:
            return f"has been stopped for {self._stopped_s:.0f} s"
        if child.incarnation in self._link.silent:
            return "says nothing any more"
        if child.spec.name == COORDINATOR and self._link.is_deaf(child.started, now):
            return "answers no more"
        return ""
