"""The first lines of every actor's process: die with the supervisor, then become the actor.

`python -P -m actors.supervisor.processes.exec_actor MODULE ARGUMENTS…`.  The lifeline pipe already
ends an actor after its supervisor's end; the kernel's parent-death signal also ends an actor that
hangs with the interpreter's lock held.  The child itself asks for the signal, because code between
fork and exec is not safe in a process with threads.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys

from actors.prctl import PR_SET_PDEATHSIG, prctl


def main() -> None:
    """Run the module that the first argument names."""
    parent = os.getppid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # The parent ended before the signal was armed, so the signal will never come.
        os._exit(1)
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
