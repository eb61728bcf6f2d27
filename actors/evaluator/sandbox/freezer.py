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

from actors.evaluator.sandbox import process_stats
from actors.evaluator.sandbox.init_process import all_process_names, descendants
from actors.evaluator.sandbox.zygote_client import ZygoteClient

MAX_ROUNDS = 8  # processes that fork while they are being stopped
# The share of the time, and the seconds at least, that tell running from being stopped.
MAX_FROZEN_CPU_SHARE, MIN_FROZEN_CPU_S = 0.1, 0.05
RECENT_S = 0.1  # no number of a process is given again that soon: there are 32,768 at least
MAX_WAKE_S = 0.001  # of a race, by somebody who had stopped: nobody honest runs at all
SETTLE_S = 2.0  # from being told to stop until having stopped, on a busy machine
POLL_S = 50e-6
HIGH_PRIORITY = "-15"  # nice value of a session, among sessions (autogroup); for root only


class ProcessFreezer:
    """One candidate's processes, stopped and continued as one."""

    def __init__(self, init_processes: set[int], other_processes: Set[str] = frozenset()) -> None:
        """`other_processes`: processes that were there before."""
        self._init_processes = init_processes
        self._other_processes = other_processes
        self._frozen: set[int] = set()
        self._let_go: set[int] = set()  # when last they might go on
        self._let_go_at = 0.0
        self._spent: dict[int, float] = {}  # of processor time, when they were stopped
        self._since = 0.0
        self._held_s = 0.0
        self._beside_s = self._beside_ran_s = 0.0  # in the other side's windows only
        self._exactly: dict[int, float] = {}  # the same, where the kernel counts nanoseconds
        self._woke_s = 0.0
        self._ran_s = 0.0  # of processor time that was taken by who was to stand still

    def add_init_processes(self, init_processes: set[int]) -> None:
        """Mind what these keep, too."""
        self._init_processes |= init_processes

    def freeze(self) -> None:
        """Stop them all, and remember what they had taken of the processor."""
        self.send_stop()
        self.wait_stopped()
        self.snapshot_cpu()

    def send_stop(self) -> None:
        """Stop them all, those that are started meanwhile included."""
        # Who is known at once: finding everybody takes as long as many a call.
        if time.monotonic() - self._let_go_at < RECENT_S:
            for pid in self._let_go:
                _signal(pid, signal.SIGSTOP)
        self._let_go = set()
        for _round in range(MAX_ROUNDS):
            if self._stop_new():
                break

    def _stop_new(self) -> bool:
        """Stop who is not known to be stopped yet; say whether there was nobody."""
        fresh = self._family() - self._frozen
        for pid in fresh:
            _signal(pid, signal.SIGSTOP)
        self._frozen |= fresh
        return not fresh

    def wait_stopped(self) -> bool:
        """Wait until they have stopped, not only been told to; say whether they have."""
        until = time.monotonic() + SETTLE_S
        moving = self._frozen
        while moving:
            moving = {pid for pid in moving if process_stats.is_running(pid)}
            if moving:
                time.sleep(POLL_S)  # who is to stop has to be let run for that
            if time.monotonic() > until:
                return False
        return True

    def wait_all_stopped(self) -> bool:
        """Wait until nobody moves and nobody is new; say whether that came to be.

        Who was started while they were held still is stopped as well, and all that it took counts.
        """
        until = time.monotonic() + SETTLE_S
        while time.monotonic() < until:
            if not self.wait_stopped():
                return False
            if self._stop_new():
                return True
        return False

    def snapshot_cpu(self) -> None:
        """Remember what they have taken of the processor so far."""
        self._exactly = {pid: process_stats.thread_cpu_time_s(pid) for pid in self._frozen}
        self._spent = {pid: process_stats.cpu_time_s(pid) for pid in self._frozen}
        self._since = time.monotonic()

    def account_cpu(self, *, everywhere: bool = False) -> None:
        """Note what they took of the processor since they were stopped, or last looked at."""
        if not self._frozen:
            return
        self._stop_new()
        now = time.monotonic()
        self._held_s += now - self._since
        spent = self._spent_by(frozenset() if everywhere else self._other_processes)
        self._ran_s += _more(spent, self._spent)
        self._spent, self._since = spent, now
        exactly = {pid: process_stats.thread_cpu_time_s(pid) for pid in self._frozen}
        self._woke_s += _more(exactly, self._exactly)
        self._exactly = exactly

    @contextmanager
    def while_other_side_runs(self) -> Iterator[None]:
        """Note what they take of the processor in the other side's window.

        On its own: a referee may work ten times as long as the windows last, and a tenth of that
        would be all of the other side's time.
        """
        began, before = (
            time.monotonic(),
            {pid: process_stats.cpu_time_s(pid) for pid in self._frozen},
        )
        try:
            yield
        finally:
            if before:
                self._beside_s += time.monotonic() - began
                self._beside_ran_s += _more(self._spent_by(self._other_processes), before)

    def _spent_by(self, other_processes: Set[str]) -> dict[int, float]:
        return {
            pid: process_stats.cpu_time_s(pid)
            for pid in self._processes(other_processes) | self._frozen
        }

    @property
    def ran_s(self) -> float:
        """The processor time that they took while they were to stand still."""
        return max(self._woke_s, self._ran_s, self._beside_ran_s)

    @property
    def ran_while_frozen(self) -> bool:
        """Whether they ran while they were to stand still."""
        return (
            self._woke_s > MAX_WAKE_S
            or self._ran_s > max(MIN_FROZEN_CPU_S, MAX_FROZEN_CPU_SHARE * self._held_s)
            or self._beside_ran_s > max(MIN_FROZEN_CPU_S, MAX_FROZEN_CPU_SHARE * self._beside_s)
        )

    def thaw(self) -> None:
        """Let them go on."""
        for pid in self._frozen:
            _signal(pid, signal.SIGCONT)
        self._let_go, self._let_go_at = self._frozen, time.monotonic()
        self._frozen, self._spent = set(), {}

    def oldest(self) -> int:
        """Return the runner among them: nobody below the keeper's first process is older."""
        return min(self._frozen, key=lambda pid: (process_stats.start_ticks(pid), pid), default=0)

    def boost_priority(self) -> None:
        """Let those that are held still go before strangers, once they go on."""
        for pid in self._frozen:
            _boost(pid)

    def boost_priority_of_all(self) -> None:
        """Let them go before strangers for good: trusted ones only."""
        for pid in self._processes(self._other_processes):
            _boost(pid)

    def _family(self) -> set[int]:
        """Return their processes as parents know them, which costs a tenth of asking everybody.

        The kernel's lists may miss one while processes come and go: once all are stopped none do.
        """
        if not process_stats.HAS_CHILDREN_FILE:
            return self._processes(self._other_processes)
        return process_stats.descendants_of(
            {
                first
                for keeper in self._init_processes
                for first in process_stats.children_of(keeper)
            }
        )

    def _processes(self, other_processes: Set[str]) -> set[int]:
        found: set[int] = set()
        for keeper in self._init_processes:
            below = set(descendants(keeper, other_processes))
            found |= {pid for pid in below if process_stats.parent_of(pid) != keeper}
        return found


def _more(spent: Mapping[int, float], before: Mapping[int, float]) -> float:
    # Whoever was born meanwhile counts whole: none of those that stand still has children.
    return sum(max(0.0, spent[pid] - before.get(pid, 0.0)) for pid in spent)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _boost(pid: int) -> None:
    # Stopped again after its window, it can't use this against anybody; at its end it is killed.
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(HIGH_PRIORITY, encoding="ascii")


@contextmanager
def freezer_for_new_children(zygote: ZygoteClient) -> Iterator[ProcessFreezer]:
    """Give the stillness of what is spawned meanwhile: it knows them by their new keepers."""
    before, freezer = _children(zygote.pid), ProcessFreezer(set(), all_process_names())
    yield freezer
    freezer.add_init_processes(_children(zygote.pid) - before)


def _children(parent: int | None) -> set[int]:
    """Return the processes right below `parent`: keepers, when it is the zygote."""
    if parent is None:
        return set()
    below = descendants(parent)
    return {pid for pid in below if process_stats.parent_of(pid) == parent}
