"""Clocks of the host that leave out what other programs take: the machine is rarely quiet."""

from __future__ import annotations

import time
from pathlib import Path

from actors import procfs

SCHEDULER = Path("/proc/thread-self/schedstat")  # ns on a processor, ns ready and waiting for one


def working_seconds() -> float:
    """Return the seconds in which this thread has worked, without those in which others ran.

    It takes part in what torch computes on a CPU, and waits for the other threads without sleeping.
    """
    return time.thread_time()


def waited_seconds() -> float:
    """Return the seconds in which this thread was ready and no processor was free for it.

    0 where the system does not say.  Sleep and input are not among them.
    """
    return procfs.waited_s(SCHEDULER)
