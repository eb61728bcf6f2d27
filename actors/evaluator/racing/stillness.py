"""Holding a candidate still: outside its own windows of time no process of it gets the processor.

What it would do in the reference's time, or between its own calls, it can't; and what it does
within its window is on the clock.  The judge is the caller; the processes are found through the
keeper, whose own first process is left running: it must see the end of everything.

The kernel itself wakes who asked it to (a timer whose signal is SIGCONT): what processes that are
to stand still take of the processor is counted.

A machine has hundreds of processes, and finding ours among all takes milliseconds.  Those that were
there before ours are looked at only now and then: nobody becomes a child later, but a number may be
given again.

Within its window a side goes before strangers, where the machine lets us say so: two OpenMP threads
of which one waits for a stranger's compiler take ten times as long, and that says nothing of them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from pathlib import Path

from actors.evaluator.isolation.keeper import descendants, everybody
from actors.evaluator.isolation.nursery import Nursery

ROUNDS = 8  # processes that fork while they are being stopped
# The share of the time, and the seconds at least, that tell running from being stopped.
RESTLESS, RESTLESS_S = 0.1, 0.05
TICKS = os.sysconf("SC_CLK_TCK")
AHEAD = "-15"  # nice value of a session, among sessions (autogroup); for root only


class Stillness:
    """One candidate's processes, stopped and continued as one."""

    def __init__(self, keepers: set[int], strangers: Set[str] = frozenset()) -> None:
        """`strangers`: processes that were there before."""
        self._keepers = keepers
        self._strangers = strangers
        self._still: set[int] = set()
        self._spent: dict[int, float] = {}  # of processor time, when they were stopped
        self._since = 0.0
        self._held_s = 0.0
        self._beside_s = self._beside_ran_s = 0.0  # in the other side's windows only
        self._ran_s = 0.0  # of processor time that was taken by who was to stand still

    def take(self, keepers: set[int]) -> None:
        """Mind what these keep, too."""
        self._keepers |= keepers

    def begin(self) -> None:
        """Stop them all, those that are started meanwhile included."""
        for _round in range(ROUNDS):
            fresh = self._processes(self._strangers) - self._still
            if not fresh:
                break
            for pid in fresh:
                _signal(pid, signal.SIGSTOP)
            self._still |= fresh
        self._spent = {pid: spent_s(pid) for pid in self._still}
        self._since = time.monotonic()

    def look(self, *, everywhere: bool = False) -> None:
        """Note what they took of the processor since they were stopped, or last looked at."""
        if not self._still:
            return
        now = time.monotonic()
        self._held_s += now - self._since
        spent = self._spent_by(frozenset() if everywhere else self._strangers)
        self._ran_s += _more(spent, self._spent)
        self._spent, self._since = spent, now

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Note what they take of the processor in the other side's window.

        On its own: a referee may work ten times as long as the windows last, and a tenth of that
        would be all of the other side's time.
        """
        began, before = time.monotonic(), {pid: spent_s(pid) for pid in self._still}
        try:
            yield
        finally:
            if before:
                self._beside_s += time.monotonic() - began
                self._beside_ran_s += _more(self._spent_by(self._strangers), before)

    def _spent_by(self, strangers: Set[str]) -> dict[int, float]:
        return {pid: spent_s(pid) for pid in self._processes(strangers) | self._still}

    @property
    def ran_s(self) -> float:
        """The processor time that they took while they were to stand still."""
        return max(self._ran_s, self._beside_ran_s)

    @property
    def restless(self) -> bool:
        """Whether they ran while they were to stand still."""
        return self._ran_s > max(RESTLESS_S, RESTLESS * self._held_s) or (
            self._beside_ran_s > max(RESTLESS_S, RESTLESS * self._beside_s)
        )

    def end(self) -> None:
        """Let them go on."""
        for pid in self._still:
            _favour(pid)
            _signal(pid, signal.SIGCONT)
        self._still, self._spent = set(), {}

    def favour(self) -> None:
        """Let them go before strangers for good: trusted ones only."""
        for pid in self._processes(self._strangers):
            _favour(pid)

    def _processes(self, strangers: Set[str]) -> set[int]:
        found: set[int] = set()
        for keeper in self._keepers:
            below = set(descendants(keeper, strangers))
            found |= {pid for pid in below if parent_of(pid) != keeper}
        return found


def _more(spent: Mapping[int, float], before: Mapping[int, float]) -> float:
    # Whoever was born meanwhile counts whole: none of those that stand still has children.
    return sum(max(0.0, spent[pid] - before.get(pid, 0.0)) for pid in spent)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _favour(pid: int) -> None:
    # Stopped again after its window, it can't use this against anybody; at its end it is killed.
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(AHEAD, encoding="ascii")


@contextmanager
def born(nursery: Nursery) -> Iterator[Stillness]:
    """Give the stillness of what is spawned meanwhile: it knows them by their new keepers."""
    before, still = _children(nursery.pid), Stillness(set(), everybody())
    yield still
    still.take(_children(nursery.pid) - before)


def _children(parent: int | None) -> set[int]:
    """Return the processes right below `parent`: keepers, when it is the zygote."""
    if parent is None:
        return set()
    below = descendants(parent)
    return {pid for pid in below if parent_of(pid) == parent}


def spent_s(pid: int) -> float:
    """Return the processor time that a process took, threads and dead children included."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS
    except (OSError, ValueError):
        return 0.0


def parent_of(pid: int) -> int:
    """Return a process's parent; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
