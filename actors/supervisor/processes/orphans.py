"""The processes that a killed supervisor left, found by the mark in their environment.

Lifelines and parent-death signals end such processes within moments.  A resume does not rely on
that: a run must never have two coordinators.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from actors import procfs
from actors.supervisor.processes.environment import RUN_VARIABLE

LIMIT_S = 10.0
POLL_S = 0.02


class OrphansRemainError(Exception):
    """Processes of this run can't be ended; a second supervisor could damage the run."""


def find_orphans(run_id: str) -> set[int]:
    """Return a run's processes and their descendants, without this process and its ancestors."""
    known = procfs.parent_pids()
    marked = [
        pid
        for pid in known
        if procfs.has_variable(pid, RUN_VARIABLE, run_id) and not procfs.is_zombie(pid)
    ]
    return procfs.with_descendants(marked, known) - procfs.ancestors(os.getpid(), known)


def kill_orphans(run_id: str, limit_s: float = LIMIT_S) -> int:
    """Kill all processes of a run and wait until they are gone; return how many there were.

    Raises OrphansRemainError with one line when some do not end.
    """
    seen: set[int] = set()
    give_up = time.monotonic() + limit_s
    while found := {pid for pid in find_orphans(run_id) if not procfs.is_zombie(pid)}:
        seen |= found
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > give_up:
            pids = ", ".join(str(pid) for pid in sorted(found))
            raise OrphansRemainError(f"processes of this run can't be ended: {pids}")
        time.sleep(POLL_S)
    return len(seen)
