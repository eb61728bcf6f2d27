"""Keeps the host's processors awake between timed blocks.

A virtual machine hands an idle processor back to its host, and waits when it wants it again.  The
blocks of both sides are short and begin after a pause, so they paid for that: on a quiet machine of
two processors calls took 130 µs in one block and 290 µs in the next, and beside two busy programs
130 µs in nearly all.  So loops of the lowest priority fill the pauses.  In a block, the processors
have its calls alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from actors.evaluator.sandbox import cgroup

LOOP = Path(__file__).parents[1] / "children" / "processor_loop.py"


class AwakeProcessors:
    """The loops of one benchmark: one on each processor that this process may use."""

    def __init__(self, process: subprocess.Popen[bytes] | None = None) -> None:
        """`process`: the first of the loops, which leads the group of all; None: there are none."""
        self.process = process

    def rest(self) -> None:
        """Stop the loops, until `go_on`."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let the loops run where nothing else runs."""
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """End the loops."""
        self._signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
            self.process = None

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)


@contextmanager
def kept_awake() -> Iterator[AwakeProcessors]:
    """Keep the processors awake, except while the loops rest.

    Not where a control group limits the processor time: the loops would use it up.
    """
    if cgroup.has_processor_limit():
        yield AwakeProcessors()
        return
    loops = [sys.executable, "-I", "-S", str(LOOP), *map(str, sorted(os.sched_getaffinity(0)))]
    loop = subprocess.Popen(loops, stdin=subprocess.DEVNULL, start_new_session=True)
    awake = AwakeProcessors(loop)
    try:
        yield awake
    finally:
        awake.end()
