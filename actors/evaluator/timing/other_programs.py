"""How much of the processors' time other programs took: a thread also waits for threads of its own.

The kernel counts for each thread how long it was ready and had no processor, but not which had it.
Threads of one computation that are more than the processors wait for each other on a quiet machine,
too.  What other programs used is what all programs used, less what this process and its children
did.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from actors import procfs
from actors.evaluator.timing.timing_policy import POLICY


class OtherPrograms:
    """The use of this process's processors by other programs, since this was made."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._processors = frozenset(os.sched_getaffinity(0))
        self._began = clock()
        self._busy_s = procfs.busy_s(self._processors)
        self._own_s = own_s()

    def share(self) -> float | None:
        """Return their share of the processors' time so far; None where the kernel does not say."""
        elapsed_s = (self._clock() - self._began) * len(self._processors)
        busy_s = procfs.busy_s(self._processors)
        if self._busy_s is None or busy_s is None or elapsed_s <= 0:
            return None
        others_s = busy_s - self._busy_s - (own_s() - self._own_s)
        return max(0.0, min(1.0, others_s / elapsed_s))


def own_s() -> float:
    """Return the processor time of this process and of all processes below it."""
    here = os.getpid()
    return sum(map(procfs.cpu_time_s, [here, *procfs.living_descendants(here)]))


def is_quiet(share: float | None) -> bool:
    """Whether other programs used too little to have delayed anything."""
    return share is not None and share <= POLICY.quiet_share
