"""Keeps the host's processors awake while blocks are timed.

A virtual machine hands an idle processor back to its host, and waits when it wants it again.  The
blocks of both sides are short and begin after a pause, so they paid for that: on a quiet machine of
two processors calls took 130 µs in one block and 290 µs in the next, and beside two busy programs
130 µs in nearly all.  So loops of the lowest priority fill the pauses, and on a virtual machine go
on in blocks: threads of a call wait for each other there.  Elsewhere blocks have the processors
alone, since a loop would slow the other hardware thread of its core.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from actors.evaluator.sandbox import cgroup

LOOP = Path(__file__).parents[1] / "children" / "processor_loop.py"
PROCESSORS = Path("/proc/cpuinfo")


class AwakeProcessors:
    """The loops of one benchmark: one on each processor that this process may use."""

    def __init__(
        self, process: subprocess.Popen[bytes] | None = None, *, rests_in_blocks: bool = True
    ) -> None:
        """`process`: the first of the loops, which leads the group of all; None: there are none."""
        self.process = process
        self._rests_in_blocks = rests_in_blocks

    def rest(self) -> None:
        """Stop the loops for a block, until `go_on`, where they rest in blocks."""
        if self._rests_in_blocks:
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


def may_loop_in_blocks() -> bool:
    """Whether loops may go on in blocks: on a virtual machine whose groups share one priority.

    Where control groups divide the time, the loops' group would take half of a side's.
    """
    return _is_virtual_machine(PROCESSORS) and not cgroup.divides_processor_time()


@cache
def _is_virtual_machine(processors: Path) -> bool:
    """Whether the processors say so; a machine with many needs a while to tell of all."""
    return "hypervisor" in processors.read_text(encoding="utf-8").split()


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
    awake = AwakeProcessors(loop, rests_in_blocks=not may_loop_in_blocks())
    try:
        yield awake
    finally:
        awake.end()
