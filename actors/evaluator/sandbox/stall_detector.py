"""Tells a call that prepares something from one that only waits or computes.

A candidate's first calls may compile for a minute, and the judge has to wait for them.  What
compiles takes memory, or has other processes work; a loop without an end, and a thread that waits
for a kernel without an end, do neither.  The kernel counts both, outside of the candidate.

A candidate can produce such signs without an end.  Then it has the limit of its stage, which is
longer.  Linux only; the judge is the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from actors import procfs
from protocol.values import Value

LOOK_S = 1.0  # between two looks; a call that is shorter is never looked at
MOST_LATE_S = 3.0  # a look that comes later has missed what went before
# What is more than noise between two signs: page faults, and seconds of processors.  Ten seconds of
# Python's or torch's loops, on memory that is there, have no page fault.
FAULTS, OTHERS_S = 16, 0.1


class WorkCounts(Value, frozen=True, kw_only=True):
    """What a candidate's processes have done so far, besides the computing of the first one."""

    faults: int  # pages of memory that were touched for the first time
    others_s: float  # processor time of all processes but the first

    def differs(self, other: WorkCounts) -> bool:
        """Whether something was prepared in between: both counts fall when a process has ended."""
        return (
            abs(self.faults - other.faults) >= FAULTS
            or abs(self.others_s - other.others_s) >= OTHERS_S
        )


def work_counts(pids: Set[int]) -> WorkCounts:
    """Read the counts of these processes; the oldest is the one that serves the judge."""
    first = min(pids, key=lambda pid: (procfs.start_ticks(pid), pid), default=0)
    return WorkCounts(
        faults=sum(map(procfs.page_faults, pids)),
        others_s=sum(procfs.cpu_time_s(pid) for pid in pids - {first}),
    )


class StallDetector:
    """Watches one candidate's processes while the judge waits for an answer."""

    def __init__(self, processes: Callable[[], Set[int]], limit_s: float) -> None:
        """`limit_s`: how long a call may go on without a sign of preparation."""
        self.limit_s = limit_s
        self._processes = processes
        self._looked_at = self._sign_at = 0.0
        self._counts: WorkCounts | None = None  # at the last sign

    def begin(self, now: float) -> None:
        """Note that an answer is waited for from now on."""
        self._looked_at, self._counts = now, None

    def is_stalled(self, now: float) -> bool:
        """Whether nothing was prepared for as long as the limit says."""
        if now - self._looked_at < LOOK_S:
            return False
        # Nothing was seen while the judge itself stood still, with the machine for example.
        self._sign_at += max(0.0, now - self._looked_at - MOST_LATE_S)
        self._looked_at = now
        counts = work_counts(self._processes())
        if self._counts is None or counts.differs(self._counts):
            self._counts, self._sign_at = counts, now
        return now - self._sign_at >= self.limit_s
