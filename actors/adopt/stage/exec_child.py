"""Becomes another program that is told to end when its parent does, also after a kill -9.

    python -m actors.adopt.stage.exec_child TERM PARENT COMMAND...

A process of its own sets this, for a fork of a process with threads may only call exec.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from actors.installation import module_path
from actors.prctl import PR_SET_PDEATHSIG, prctl


@contextmanager
def started_child(
    command: Sequence[str],
    at_parents_end: signal.Signals,
    variables: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command while the context is open; what is left of it then is killed.

    `variables`: what it has in its environment besides this process's own.
    """
    name = at_parents_end.name.removeprefix("SIG")
    itself = [sys.executable, "-m", "actors.adopt.stage.exec_child"]
    words = [*itself, name, str(os.getpid()), *command]
    environment = {**os.environ, **(variables or {}), "PYTHONPATH": module_path(os.environ)}
    with subprocess.Popen(words, env=environment) as child:
        try:
            yield child
        finally:
            child.kill()


def has_ended(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a child so long; return whether it has ended."""
    try:
        child.wait(None if math.isinf(seconds) else seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def main() -> None:
    """Set the signal, and become the command."""
    _, name, parent, *command = sys.argv
    prctl(PR_SET_PDEATHSIG, signal.Signals[f"SIG{name}"])
    if os.getppid() != int(parent):
        sys.exit(f"adopt: the process that asked for {command[0]} has ended")
    os.execv(command[0], command)  # noqa: S606  # no shell: the words are ours


if __name__ == "__main__":
    main()
