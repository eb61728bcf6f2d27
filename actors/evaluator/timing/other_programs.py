"""How much of the processors' time other programs took: a thread also waits for threads of its own.

The kernel counts for each thread how long it was ready and had no processor, but not which had it.
Threads of one computation that are more than the processors wait for each other on a quiet machine,
too.  What other programs used is what all programs used, less what this process and its children
did.

A candidate's processes may end without being counted (a parent that ignores SIGCHLD), and look like
other programs.  So nothing is excused by those that can't be seen while it is frozen.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

from actors import procfs
from actors.evaluator.timing.timing_policy import POLICY


class OtherPrograms:
    """The use of this process's processors by other programs, since this was made."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._processors = frozenset(os.sched_getaffinity(0))
        self._began = self._read()
        self._looked: tuple[float, bool] = (-math.inf, False)  # when, and what was found

    def share(self) -> float | None:
        """Return their share of the processors' time so far; None where the kernel does not say."""
        return self._share_since(self._began)

    def are_busy_now(self) -> bool:
        """Whether they use processors at this moment, in which no side runs; what was just seen."""
        when, found = self._looked
        if self._clock() - when > POLICY.same_moment_s:
            before = self._read()
            self._sleep(POLICY.busy_look_s)
            share = self._share_since(before)
            found = share is None or share > POLICY.busy_share
            self._looked = self._clock(), found
        return found

    def _read(self) -> tuple[float, float | None, float]:
        """Return the clock's seconds, those of busy processors, and this program's."""
        return self._clock(), procfs.busy_s(self._processors), own_s()

    def _share_since(self, before: tuple[float, float | None, float]) -> float | None:
        began, busy_before_s, own_before_s = before
        now, busy_s, own_now_s = self._read()
        elapsed_s = (now - began) * len(self._processors)
        if busy_before_s is None or busy_s is None or elapsed_s <= 0:
            return None
        others_s = busy_s - busy_before_s - (own_now_s - own_before_s)
        return max(0.0, min(1.0, others_s / elapsed_s))


def own_s() -> float:
    """Return the processor time of this process and of all processes below it."""
    here = os.getpid()
    return sum(map(procfs.cpu_time_s, [here, *procfs.living_descendants(here)]))


def is_quiet(share: float | None) -> bool:
    """Whether other programs used too little to have delayed anything."""
    return share is not None and share <= POLICY.quiet_share
