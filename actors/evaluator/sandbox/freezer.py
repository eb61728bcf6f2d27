"""Freezes a candidate's processes: outside its timed windows none of them gets processor time.

A frozen candidate can't work in the reference's time or between its own calls; what it does in its
own window is on the clock.  The judge is the caller.  It finds the processes below the child's init
process.  The first of them, pid 1 of its namespace, keeps running: it must see all others end.

A process can ask the kernel to wake it: a timer whose signal is SIGCONT.  So the processor time
that frozen processes take is counted.

A machine has hundreds of processes, and finding the candidate's among all of them takes
milliseconds.  Processes that existed before the candidate's are read only now and then: a process
does not become a child later, but the kernel may give its number to a new process.

In its timed window a side gets a higher priority than other users' processes, where the machine
permits it: two OpenMP threads of which one waits for another user's compiler take ten times as
long, and that time says nothing about the candidate.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from pathlib import Path

from actors import procfs
from actors.evaluator.sandbox.zygote_client import ZygoteClient

MAX_ROUNDS = 8  # bounds the search for processes that fork while they are being stopped
# The share of the time, and the least number of seconds, that tell running from being stopped.
MAX_FROZEN_CPU_SHARE, MIN_FROZEN_CPU_S = 0.1, 0.05
RECENT_S = 0.1  # the kernel has 32,768 pids or more, and gives none a second time this soon
MAX_WAKE_S = 0.001  # of a benchmark, after all had stopped: a process of honest code never runs
SETTLE_S = 2.0  # from the stop signal until the process has stopped, on a busy machine
POLL_S = 50e-6
HIGH_PRIORITY = "-15"  # nice value of a session, among sessions (autogroup); root only
USUAL_PRIORITY = "0"


class ProcessFreezer:
    """One candidate's processes, stopped and continued as one."""

    def __init__(self, init_processes: set[int], other_processes: Set[str] = frozenset()) -> None:
        """`other_processes`: the pids that existed before the candidate's processes."""
        self._init_processes = init_processes
        self._other_processes = other_processes
        self._frozen: set[int] = set()
        self._thawed: set[int] = set()  # the processes that the last thaw continued
        self._thawed_at = 0.0
        self._cpu_s: dict[int, float] = {}  # processor time of each process at the last count
        self._thread_cpu_s: dict[int, float] = {}  # the same, where the kernel counts nanoseconds
        self._counted_at = 0.0
        self._frozen_s = 0.0
        self._ran_s = 0.0  # processor time that frozen processes took
        self._threads_ran_s = 0.0  # the same, from the count in nanoseconds
        # The same two figures, in the other side's windows only.
        self._other_side_s = self._ran_in_other_side_s = 0.0

    def add_init_processes(self, init_processes: set[int]) -> None:
        """Freeze the processes of these init processes, too."""
        self._init_processes |= init_processes

    def freeze(self) -> None:
        """Stop all processes and remember their processor time."""
        self.send_stop()
        self.wait_stopped()
        self.snapshot_cpu()

    def send_stop(self) -> None:
        """Send the stop signal to all processes, also to those that start while this runs."""
        # Known processes first: the search for all of them takes as long as many a call.
        if time.monotonic() - self._thawed_at < RECENT_S:
            for pid in self._thawed:
                _signal(pid, signal.SIGSTOP)
        self._thawed = set()
        for _round in range(MAX_ROUNDS):
            if self._stop_new():
                break

    def stop_known(self) -> None:
        """Stop the processes that the last thaw continued, and wait until they have stopped.

        That takes a tenth of a millisecond.  `freeze` stops those that started since.
        """
        if time.monotonic() - self._thawed_at >= RECENT_S:
            self.send_stop()
        else:
            for pid in self._thawed:
                _signal(pid, signal.SIGSTOP)
            self._frozen |= self._thawed
        self.wait_stopped()

    def _stop_new(self) -> bool:
        """Stop the processes that are not known to be stopped; return whether there were none."""
        fresh = self._listed_processes() - self._frozen
        for pid in fresh:
            _signal(pid, signal.SIGSTOP)
        self._frozen |= fresh
        return not fresh

    def wait_stopped(self) -> bool:
        """Wait until the signalled processes have stopped; return whether they have."""
        until = time.monotonic() + SETTLE_S
        moving = self._frozen
        while moving:
            moving = {pid for pid in moving if procfs.is_running(pid)}
            if moving:
                time.sleep(POLL_S)  # a process needs the processor to handle its stop signal
            if time.monotonic() > until:
                return False
        return True

    def wait_all_stopped(self) -> bool:
        """Wait until every process has stopped and no new one appears; return whether that holds.

        A process that was started while the others were frozen is stopped as well, and all of its
        processor time counts.
        """
        until = time.monotonic() + SETTLE_S
        while time.monotonic() < until:
            if not self.wait_stopped():
                return False
            if self._stop_new():
                return True
        return False

    def snapshot_cpu(self) -> None:
        """Remember the processor time that the frozen processes have taken so far."""
        self._thread_cpu_s = {pid: procfs.thread_cpu_time_s(pid) for pid in self._frozen}
        self._cpu_s = {pid: procfs.cpu_time_s(pid) for pid in self._frozen}
        self._counted_at = time.monotonic()

    def waited_s(self, *, main_thread_alone: bool = False) -> float:
        """Return how long threads of the frozen processes have waited for a processor so far.

        `main_thread_alone`: on a card only the thread that launches counts; the driver has more.
        """
        if main_thread_alone:
            return procfs.main_thread_wait_s(self.oldest())
        return sum(procfs.thread_wait_s(pid) for pid in self._frozen)

    def busiest_threads(self) -> list[int]:
        """Return the threads of the frozen processes: the main one, then by processor time."""
        main = self.oldest()
        ran_s = {
            thread: seconds
            for pid in self._frozen
            for thread, seconds in procfs.thread_cpu_times_s(pid).items()
        }
        return sorted(ran_s, key=lambda thread: (thread != main, -ran_s[thread]))

    def account_cpu(self, *, everywhere: bool = False) -> None:
        """Add the processor time that the frozen processes took since the last count.

        `everywhere`: look for them among all processes, also among the earlier ones.
        """
        if not self._frozen:
            return
        self._stop_new()
        now = time.monotonic()
        self._frozen_s += now - self._counted_at
        cpu_s = self._cpu_time_by_pid(frozenset() if everywhere else self._other_processes)
        self._ran_s += _increase_s(cpu_s, self._cpu_s)
        self._cpu_s, self._counted_at = cpu_s, now
        thread_cpu_s = {pid: procfs.thread_cpu_time_s(pid) for pid in self._frozen}
        self._threads_ran_s += _increase_s(thread_cpu_s, self._thread_cpu_s)
        self._thread_cpu_s = thread_cpu_s

    @contextmanager
    def while_other_side_runs(self) -> Iterator[None]:
        """Count the processor time that the frozen processes take in the other side's window.

        It is counted apart from the rest: a referee may work ten times as long as the windows
        last, and a tenth of that would be all of the other side's time.
        """
        began, before = (
            time.monotonic(),
            {pid: procfs.cpu_time_s(pid) for pid in self._frozen},
        )
        try:
            yield
        finally:
            if before:
                self._other_side_s += time.monotonic() - began
                self._ran_in_other_side_s += _increase_s(
                    self._cpu_time_by_pid(self._other_processes), before
                )

    def _cpu_time_by_pid(self, other_processes: Set[str]) -> dict[int, float]:
        return {
            pid: procfs.cpu_time_s(pid) for pid in self._processes(other_processes) | self._frozen
        }

    @property
    def ran_s(self) -> float:
        """The processor time that the processes took while they were frozen."""
        return max(self._threads_ran_s, self._ran_s, self._ran_in_other_side_s)

    @property
    def ran_while_frozen(self) -> bool:
        """Whether the processes ran while they were frozen."""
        other_side_limit_s = MAX_FROZEN_CPU_SHARE * self._other_side_s
        return (
            self._threads_ran_s > MAX_WAKE_S
            or self._ran_s > max(MIN_FROZEN_CPU_S, MAX_FROZEN_CPU_SHARE * self._frozen_s)
            or self._ran_in_other_side_s > max(MIN_FROZEN_CPU_S, other_side_limit_s)
        )

    def thaw(self) -> None:
        """Continue all frozen processes."""
        for pid in self._frozen:
            _signal(pid, signal.SIGCONT)
        self._thawed, self._thawed_at = self._frozen, time.monotonic()
        self._frozen, self._cpu_s = set(), {}

    def frozen_pids(self) -> frozenset[int]:
        """Return the pids of the frozen processes."""
        return frozenset(self._frozen)

    def processes(self) -> set[int]:
        """Return the pids of the processes that are there now; it may miss one that just began."""
        return self._listed_processes()

    def oldest(self) -> int:
        """Return the runner's pid: it is the oldest process below the first process."""
        return min(self._frozen, key=lambda pid: (procfs.start_ticks(pid), pid), default=0)

    def boost_priority(self) -> None:
        """Give the frozen processes priority over other users' processes, once they go on."""
        _set_priority(self._frozen, HIGH_PRIORITY)

    def boost_priority_of_all(self) -> None:
        """Give all processes priority for good: trusted ones only."""
        _set_priority(self._processes(self._other_processes), HIGH_PRIORITY)

    @contextmanager
    def priority_of_all(self) -> Iterator[None]:
        """Give all processes priority for the length of a block of code."""
        processes = self._processes(self._other_processes)
        _set_priority(processes, HIGH_PRIORITY)
        try:
            yield
        finally:
            _set_priority(processes, USUAL_PRIORITY)

    def _listed_processes(self) -> set[int]:
        """Return the candidate's processes by the kernel's lists of children.

        That costs a tenth of reading every process.  The lists may miss one while processes come
        and go; they are complete once all processes are stopped.
        """
        if not procfs.HAS_CHILDREN_FILE:
            return self._processes(self._other_processes)
        return procfs.listed_descendants(
            {
                first
                for init_process in self._init_processes
                for first in procfs.listed_children(init_process)
            }
        )

    def _processes(self, other_processes: Set[str]) -> set[int]:
        found: set[int] = set()
        for init_process in self._init_processes:
            below = set(procfs.living_descendants(init_process, other_processes))
            found |= {pid for pid in below if procfs.parent_of(pid) != init_process}
        return found


def _increase_s(after: Mapping[int, float], before: Mapping[int, float]) -> float:
    # A process that is only in `after` counts whole: a frozen process can't start one.
    return sum(max(0.0, after[pid] - before.get(pid, 0.0)) for pid in after)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _set_priority(processes: Set[int], priority: str) -> None:
    # A candidate is stopped after its window and killed at its end, so it can't abuse the priority.
    for pid in processes:
        with suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text(priority, encoding="ascii")


@contextmanager
def freezer_for_new_children(zygote: ZygoteClient) -> Iterator[ProcessFreezer]:
    """Give the freezer of the children spawned in the block; their init processes are new."""
    before, freezer = _children_of_zygote(zygote.pid), ProcessFreezer(set(), procfs.all_pids())
    yield freezer
    freezer.add_init_processes(_children_of_zygote(zygote.pid) - before)


def _children_of_zygote(zygote: int | None) -> set[int]:
    """Return the processes directly below the zygote."""
    if zygote is None:
        return set()
    below = procfs.living_descendants(zygote)
    return {pid for pid in below if procfs.parent_of(pid) == zygote}
