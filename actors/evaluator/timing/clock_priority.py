"""How the judge's thread, which reads the clock, avoids waiting for a processor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def realtime_priority() -> Iterator[None]:
    """Let this thread run at once when an answer comes, where the machine permits it.

    The thread that waits and reads the clock has the priority, not the runner that works.  On a
    busy machine the thread would otherwise wait for a processor for longer than many a block takes,
    and that would count as the block's time.
    """
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)
