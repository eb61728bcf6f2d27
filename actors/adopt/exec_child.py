"""Becomes another program that is told to end when its parent does, also after a kill -9.

    python -m actors.adopt.exec_child TERM PARENT COMMAND...

A process of its own sets this, for a fork of a process with threads may only call exec.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from actors.installation import module_path
from actors.prctl import PR_SET_PDEATHSIG, prctl


def run_child(command: Sequence[str], at_parents_end: signal.Signals) -> int:
    """Run a command to its end; return its exit status, negative for a signal."""
    name = at_parents_end.name.removeprefix("SIG")
    words = [sys.executable, "-m", "actors.adopt.exec_child", name, str(os.getpid()), *command]
    environment = {**os.environ, "PYTHONPATH": module_path(os.environ)}
    return subprocess.run(words, check=False, env=environment).returncode


def main() -> None:
    """Set the signal, and become the command."""
    _, name, parent, *command = sys.argv
    prctl(PR_SET_PDEATHSIG, signal.Signals[f"SIG{name}"])
    if os.getppid() != int(parent):
        sys.exit(f"adopt: the process that asked for {command[0]} has ended")
    os.execv(command[0], command)  # noqa: S606  # no shell: the words are ours


if __name__ == "__main__":
    main()
