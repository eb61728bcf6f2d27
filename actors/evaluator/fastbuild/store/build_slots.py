"""How many builds may run at once on this machine: a number of lock files, one a build.

Trusted code holds a lock around a whole build.  The system releases the lock of a process that
dies, so a killed build does not block the next one.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from actors.evaluator.fastbuild.request.compiler_process import BuildTimeoutError

BUILD_GIB = 2.0  # the two halves of a light CUDA build need less, torch's own build up to 3
POLL_S = 0.05


def slots_for(cpus: int, free_gib: float) -> int:
    """Return how many builds fit: two cores and `BUILD_GIB` for each, at least one build."""
    return max(1, min((cpus + 1) // 2, int(free_gib / BUILD_GIB)))


def slots_here(reserved_cpus: int = 0) -> int:
    """Return how many builds fit on this machine now if `reserved_cpus` cores stay unused."""
    free_kib = 0
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            free_kib = int(line.split()[1])
    return slots_for(len(os.sched_getaffinity(0)) - reserved_cpus, free_kib / (1 << 20))


class BuildSlots:
    """`count` slots, as lock files in `folder`."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.count = count

    @contextmanager
    def acquired(self, wait_s: float, waiting: Callable[[], None] = lambda: None) -> Iterator[int]:
        """Hold one slot; raise `BuildTimeoutError` if none is free within `wait_s`.

        `waiting` is called at every poll; its exceptions are passed on.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        until = time.monotonic() + wait_s
        while True:
            for number in range(self.count):
                file = os.open(
                    self.folder / f"slot-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
                )
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(file)
                    continue
                try:
                    yield number
                finally:
                    os.close(file)
                return
            if time.monotonic() >= until:
                raise BuildTimeoutError(f"no build slot was free within {wait_s:g} s")
            waiting()
            time.sleep(POLL_S)
