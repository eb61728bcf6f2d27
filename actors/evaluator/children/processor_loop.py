"""A loop on each of some processors that runs only where nothing else wants to run.

The judge starts it as a script (`timing/awake_processors.py`): it imports nothing of the project,
and does no work.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
LOWEST_PRIORITY = "19"  # of a session among sessions (autogroup)


def main(processors: list[int]) -> None:
    """Loop on the first processor; children of this process loop on the others."""
    parent = os.getppid()
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(LOWEST_PRIORITY, encoding="ascii")
    mine, *others = processors
    for processor in others:
        if not os.fork():
            mine, parent = processor, os.getppid()
            break
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was told to end this process with it
        return
    with suppress(OSError):
        os.sched_setaffinity(0, {mine})
    while True:
        pass


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]])
