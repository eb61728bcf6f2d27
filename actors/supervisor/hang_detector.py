"""Who hangs: processes that live and say nothing, or were stopped and not continued.

A dead child is noticed by its pidfd; a hung one only by its silence.  The coordinator tells which
workers it hears no more (their leases have moved on by then), and is itself asked at every beat.
Used by the supervision loop, which kills what is named here; the restart then follows by itself.
"""

from __future__ import annotations

from actors import procfs
from actors.supervisor.coordinator_client import CoordinatorClient
from actors.supervisor.processes.child_process import ChildProcess
from actors.supervisor.processes.child_specs import COORDINATOR
from actors.supervisor.processes.process_tree import ProcessTree

POLL_S = 1.0
LEASE_S = 15.0
# Of a lease's time: whoever is continued before has lost nothing but the lease.
STOPPED_LEASES = 4 / 3


class HangDetector:
    """Looks after the living."""

    def __init__(
        self, processes: ProcessTree, coordinator: CoordinatorClient, lease_s: float = LEASE_S
    ) -> None:
        self._processes = processes
        self._coordinator = coordinator
        self._stopped_s = STOPPED_LEASES * lease_s
        self._next_poll = 0.0
        self._stopped: dict[str, float] = {}  # incarnation -> seen stopped since
        self._reported: set[str] = set()  # said once; it may take a moment to die

    def hung_children(self, now: float) -> list[tuple[ChildProcess, str]]:
        """Return the children that hang, each once, and what is wrong in words."""
        if now < self._next_poll:
            return []
        self._next_poll = now + POLL_S
        living = self._processes.living
        self._reported &= {child.incarnation for child in living}
        self._note_stopped(living, now)
        found = [(child, self._hang_reason(child, now)) for child in living]
        found = [(child, why) for child, why in found if why]
        self._reported |= {child.incarnation for child, _ in found}
        return found

    def _note_stopped(self, living: list[ChildProcess], now: float) -> None:
        stopped = [child.incarnation for child in living if procfs.is_stopped(child.pid)]
        self._stopped = {name: self._stopped.get(name, now) for name in stopped}

    def _hang_reason(self, child: ChildProcess, now: float) -> str:
        if child.incarnation in self._reported:
            return ""
        if now - self._stopped.get(child.incarnation, now) >= self._stopped_s:
            return f"has been stopped for {self._stopped_s:.0f} s"
        if child.incarnation in self._coordinator.silent:
            return "says nothing any more"
        if child.spec.name == COORDINATOR and self._coordinator.is_unresponsive(child.started, now):
            return "answers no more"
        return ""
