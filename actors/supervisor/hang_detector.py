"""Finds children that hang: they live and are silent, or were stopped and not continued.

The supervisor notices a dead child by its pidfd, a hung child only by its silence.  The coordinator
reports the workers that it does not hear any more (their leases have moved on by then), and must
itself answer every heartbeat.  The supervision loop kills the children that are named here; the
restart follows as for every dead child.
"""

from __future__ import annotations

from actors import procfs
from actors.supervisor.coordinator_client import CoordinatorClient
from actors.supervisor.processes.child_process import ChildProcess
from actors.supervisor.processes.child_specs import COORDINATOR
from actors.supervisor.processes.process_tree import ProcessTree

POLL_S = 1.0
LEASE_S = 15.0
# Of a lease's time: a process that is continued before has lost nothing but the lease.
STOPPED_LEASES = 4 / 3


class HangDetector:
    """Checks the living children of one process tree."""

    def __init__(
        self, processes: ProcessTree, coordinator: CoordinatorClient, lease_s: float = LEASE_S
    ) -> None:
        self._processes = processes
        self._coordinator = coordinator
        self._stopped_s = STOPPED_LEASES * lease_s
        self._next_poll = 0.0
        self._stopped: dict[str, float] = {}  # incarnation -> seen stopped since
        self._reported: set[str] = set()  # reported once; a killed process may take a moment to die

    def hung_children(self, now: float) -> list[tuple[ChildProcess, str]]:
        """Return the children that hang, each once, with the reason."""
        if now < self._next_poll:
            return []
        self._next_poll = now + POLL_S
        living = self._processes.living
        self._reported &= {child.incarnation for child in living}
        self._note_stopped(living, now)
        found = [(child, self._hang_reason(child, now)) for child in living]
        found = [(child, reason) for child, reason in found if reason]
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
            return "does not answer any more"
        return ""
