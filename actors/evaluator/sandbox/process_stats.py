"""What the kernel says of processes, in /proc: who moves, what they took, whose children they are.

A process that is gone is no error: it takes nothing, and moves no more.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Set
from contextlib import suppress
from pathlib import Path

STOPPED_STATES = b"TtDXZ"  # or in the kernel, in a call that nothing of its own can come before
HAS_CHILDREN_FILE = Path(f"/proc/self/task/{threading.get_native_id()}/children").exists()
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_time_s(pid: int) -> float:
    """Return the processor time that a process took, threads and dead children included."""
    return sum(map(int, _fields(pid)[11:15])) / TICKS_PER_S


def thread_cpu_time_s(pid: int) -> float:
    """Return the processor time that a process's living threads took; 0 where nobody counts it."""
    nanoseconds = 0
    for thread in _threads(pid):
        with suppress(OSError, ValueError, IndexError):
            nanoseconds += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_bytes().split()[0])
    return nanoseconds / 1e9


def is_running(pid: int) -> bool:
    """Whether a thread of a process has not stopped."""
    for thread in _threads(pid):
        with suppress(OSError):
            state = Path(f"/proc/{pid}/task/{thread}/stat").read_bytes().rpartition(b")")[2]
            if state[1:2] not in STOPPED_STATES:
                return True
    return False


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  # see keeper's _parent
    except OSError:
        return []


def children_of(pid: int) -> set[int]:
    """Return a process's children, as far as nobody comes or goes meanwhile."""
    found: set[int] = set()
    for thread in _threads(pid):
        with suppress(OSError, ValueError):
            found.update(map(int, _listed(pid, thread).split()))
    return found


def descendants_of(roots: Set[int]) -> set[int]:
    """Return all processes below these, by the kernel's lists of children."""
    found: set[int] = set()
    todo = list(roots)
    while todo:
        fresh = children_of(todo.pop()) - found
        found |= fresh
        todo += fresh
    return found


def _listed(pid: int, thread: str) -> bytes:
    with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123  # on the clock
        return file.read()


def start_ticks(pid: int) -> int:
    """Return when a process began, in ticks since the machine did; late when it is gone."""
    fields = _fields(pid)
    return int(fields[19]) if fields else sys.maxsize


def parent_of(pid: int) -> int:
    """Return a process's parent; 0 when it is gone."""
    fields = _fields(pid)
    return int(fields[1]) if fields else 0


def _fields(pid: int) -> list[bytes]:
    """Return what /proc says of a process after its name, from its state on; [] when it is gone.

    As bytes: a name may be any, and nobody is to be overlooked for his.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []
