"""What /proc says about processes: parents, children, environments, states and processor time.

Read by the supervisor (orphans, hang detector) and by the evaluator's sandbox (freezer, init
process).
A process may end between two lines.  An ended process is not an error: it has no parent, no
children and no processor time.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
STOPPED_STATES = b"TtDXZ"  # D: in a kernel call that no code of the process can interrupt
# Some kernels keep no list of a thread's children.
HAS_CHILDREN_FILE = Path(f"/proc/self/task/{threading.get_native_id()}/children").exists()


# --- one process ----------------------------------------------------------------------------------


def parent_of(pid: int) -> int | None:
    """Return the parent's pid, or None when there is no such process."""
    fields = _stat_fields(pid)
    return int(fields[1]) if fields else None


def is_zombie(pid: int) -> bool:
    """Whether `pid` has ended and waits for its parent to notice."""
    fields = _stat_fields(pid)
    return bool(fields) and fields[0] in b"ZX"


def is_stopped(pid: int) -> bool:
    """Whether `pid` was stopped by a signal and not continued."""
    fields = _stat_fields(pid)
    return bool(fields) and fields[0] == b"T"


def is_running(pid: int) -> bool:
    """Whether at least one thread of a process is not stopped."""
    for thread in _threads(pid):
        with suppress(OSError):
            state = Path(f"/proc/{pid}/task/{thread}/stat").read_bytes().rpartition(b")")[2]
            if state[1:2] not in STOPPED_STATES:
                return True
    return False


def start_ticks(pid: int) -> int:
    """Return when a process began, in ticks since boot; `sys.maxsize` when it is gone."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else sys.maxsize


def cpu_time_s(pid: int) -> float:
    """Return the processor time of a process, with its threads and its reaped children."""
    return sum(map(int, _stat_fields(pid)[11:15])) / TICKS_PER_S


def page_faults(pid: int) -> int:
    """Return the page faults of a process, with those of its reaped children."""
    return sum(map(int, _stat_fields(pid)[7:11]))


def busy_s(processors: Set[int]) -> float | None:
    """Return how long these processors have been busy since boot, added up; None if unknown.

    That includes the time in which a virtual processor was ready and the host ran another one.
    """
    try:
        lines = (PROC / "stat").read_text("ascii").splitlines()
        counts = [line.split() for line in lines if line.startswith("cpu") and line[3].isdigit()]
        # user, nice, system, idle, iowait, irq, softirq, steal; guests are in the first two
        return (
            sum(
                sum(map(int, (*fields[1:4], *fields[6:9])))
                for fields in counts
                if int(fields[0][3:]) in processors
            )
            / TICKS_PER_S
        )
    except (OSError, ValueError):
        return None


def thread_cpu_time_s(pid: int) -> float:
    """Return the processor time of a process's living threads, counted in nanoseconds.

    0 where the kernel does not count it.
    """
    return _schedstat_s(pid, 0)


def thread_wait_s(pid: int) -> float:
    """Return how long the living threads of a process waited for a processor, added up.

    0 where the kernel does not count it.
    """
    return _schedstat_s(pid, 1)


def thread_cpu_times_s(pid: int) -> dict[int, float]:
    """Return the processor time of each living thread; {} where the kernel does not count it."""
    found = {}
    for thread in _threads(pid):
        with suppress(OSError, ValueError, IndexError):
            stat = Path(f"/proc/{pid}/task/{thread}/schedstat").read_bytes()
            found[int(thread)] = int(stat.split()[0]) / 1e9
    return found


def this_processor() -> int | None:
    """Return the processor that runs this thread; None where the kernel does not say."""
    with suppress(OSError, ValueError, IndexError):
        stat = Path("/proc/thread-self/stat").read_bytes()
        return int(stat.rpartition(b")")[2].split()[36])
    return None


def main_thread_wait_s(pid: int) -> float:
    """Return how long the main thread of a process waited for a processor."""
    return waited_s(PROC / str(pid) / "schedstat")


def waited_s(schedstat: Path) -> float:
    """Return how long a thread with this file waited for a processor; 0 where it is not counted."""
    with suppress(OSError, ValueError, IndexError):
        return int(schedstat.read_bytes().split()[1]) / 1e9
    return 0.0


def _schedstat_s(pid: int, field: int) -> float:
    """Return the sum of one field of schedstat over the threads of a process."""
    nanoseconds = 0
    for thread in _threads(pid):
        with suppress(OSError, ValueError, IndexError):
            stat = Path(f"/proc/{pid}/task/{thread}/schedstat").read_bytes()
            nanoseconds += int(stat.split()[field])
    return nanoseconds / 1e9


def has_variable(pid: int, name: str, value: str) -> bool:
    """Whether `pid` was started with `name=value` in its environment."""
    try:
        block = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{name}={value}".encode() in block.split(b"\0")


# --- all processes --------------------------------------------------------------------------------


def all_pids() -> set[str]:
    """Return the pids of all processes, as text."""
    return {name for name in os.listdir(PROC) if name.isdigit()}  # noqa: PTH208  # see _stat_fields


def parent_pids() -> dict[int, int]:
    """Return pid -> parent's pid of all visible processes, zombies included."""
    found: dict[int, int] = {}
    for name in all_pids():
        parent = parent_of(int(name))
        if parent is not None:
            found[int(name)] = parent
    return found


def children_of(pid: int, known: dict[int, int] | None = None) -> set[int]:
    """Return the direct children of `pid`, zombies included."""
    return {child for child, parent in (known or parent_pids()).items() if parent == pid}


def with_descendants(roots: Iterable[int], known: dict[int, int]) -> set[int]:
    """Return `roots` and everything below them."""
    below: dict[int, list[int]] = {}
    for child, parent in known.items():
        below.setdefault(parent, []).append(child)
    tops = set(roots)
    return tops.union(_all_below(tops, below))


def ancestors(pid: int, known: dict[int, int]) -> set[int]:
    """Return `pid` and all above it."""
    found: set[int] = set()
    while pid and pid not in found:
        found.add(pid)
        pid = known.get(pid, 0)
    return found


def living_descendants(root: int, ignored: Set[str] = frozenset()) -> list[int]:
    """Return the living processes below `root`; zombies do not count.

    `ignored`: pids that can't be descendants.  They are not read: a machine has hundreds of
    processes, and the freezer asks before each timed window.
    """
    below: dict[int, list[int]] = {}
    for name in all_pids() - ignored:
        below.setdefault(_living_parent(name), []).append(int(name))
    return _all_below((root,), below)


def _all_below(roots: Iterable[int], below: Mapping[int, list[int]]) -> list[int]:
    """Return all processes below `roots`, each one once."""
    found: list[int] = []
    seen: set[int] = set()
    todo = list(roots)
    while todo:
        fresh = [pid for pid in below.get(todo.pop(), []) if pid not in seen]
        seen.update(fresh)
        found.extend(fresh)
        todo.extend(fresh)
    return found


def _living_parent(pid: str) -> int:
    """Return the parent of a process that is alive; 0 for all others."""
    fields = _stat_fields(pid)
    try:
        state, parent, threads = fields[0], int(fields[1]), int(fields[17])
    except (ValueError, IndexError):
        return 0
    # A process whose first thread has ended looks like a zombie, and its other threads may run.
    return 0 if state == b"X" or (state == b"Z" and threads < 2) else parent


# --- the kernel's own lists of children -----------------------------------------------------------


def listed_children(pid: int) -> set[int]:
    """Return the children that the kernel lists for `pid`.

    The list is complete only while no process starts or ends.
    """
    found: set[int] = set()
    for thread in _threads(pid):
        with suppress(OSError, ValueError):
            found.update(map(int, _children_file(pid, thread).split()))
    return found


def listed_descendants(roots: Set[int]) -> set[int]:
    """Return all processes below `roots`, by the kernel's lists of children."""
    found: set[int] = set()
    todo = list(roots)
    while todo:
        fresh = listed_children(todo.pop()) - found
        found |= fresh
        todo += fresh
    return found


def _children_file(pid: int, thread: str) -> bytes:
    with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123  # timed
        return file.read()


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  # see _stat_fields
    except OSError:
        return []


def _stat_fields(pid: int | str) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name, the state first; [] when it is gone.

    The fields are bytes, because a process may have a name that is not text.  The name is in
    parentheses and may contain spaces and parentheses, so the cut is behind the last one.
    """
    try:  # `open` takes half as long as Path's way; the freezer asks before each timed window
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []
