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
from actors.evaluator.racing import processes

ROUNDS = 8  # processes that fork while they are being stopped
# The share of the time, and the seconds at least, that tell running from being stopped.
RESTLESS, RESTLESS_S = 0.1, 0.05
RECENT_S = 0.1  # no number of a process is given again that soon: there are 32,768 at least
WOKE_S = 0.001  # of a race, by somebody who had stopped: nobody honest runs at all
SETTLE_S = 2.0  # from being told to stop until having stopped, on a busy machine
BREATH_S = 50e-6
AHEAD = "-15"  # nice value of a session, among sessions (autogroup); for root only


class Stillness:
    """One candidate's processes, stopped and continued as one."""

    def __init__(self, keepers: set[int], strangers: Set[str] = frozenset()) -> None:
        """`strangers`: processes that were there before."""
        self._keepers = keepers
        self._strangers = strangers
        self._still: set[int] = set()
        self._let_go: set[int] = set()  # when last they might go on
        self._let_go_at = 0.0
        self._spent: dict[int, float] = {}  # of processor time, when they were stopped
        self._since = 0.0
        self._held_s = 0.0
        self._beside_s = self._beside_ran_s = 0.0  # in the other side's windows only
        self._exactly: dict[int, float] = {}  # the same, where the kernel counts nanoseconds
        self._woke_s = 0.0
        self._ran_s = 0.0  # of processor time that was taken by who was to stand still

    def take(self, keepers: set[int]) -> None:
        """Mind what these keep, too."""
        self._keepers |= keepers

    def begin(self) -> None:
        """Stop them all, and remember what they had taken of the processor."""
        self.stop()
        self.settle()
        self.note()

    def stop(self) -> None:
        """Stop them all, those that are started meanwhile included."""
        # Who is known at once: finding everybody takes as long as many a call.
        if time.monotonic() - self._let_go_at < RECENT_S:
            for pid in self._let_go:
                _signal(pid, signal.SIGSTOP)
        self._let_go = set()
        for _round in range(ROUNDS):
            if self._none_more():
                break

    def _none_more(self) -> bool:
        """Stop who is not known to be stopped yet; say whether there was nobody."""
        fresh = self._family() - self._still
        for pid in fresh:
            _signal(pid, signal.SIGSTOP)
        self._still |= fresh
        return not fresh

    def settle(self) -> bool:
        """Wait until they have stopped, not only been told to; say whether they have."""
        until = time.monotonic() + SETTLE_S
        moving = self._still
        while moving:
            moving = {pid for pid in moving if processes.moves(pid)}
            if moving:
                time.sleep(BREATH_S)  # who is to stop has to be let run for that
            if time.monotonic() > until:
                return False
        return True

    def settle_all(self) -> bool:
        """Wait until nobody moves and nobody is new; say whether that came to be.

        Who was started while they were held still is stopped as well, and all that it took counts.
        """
        until = time.monotonic() + SETTLE_S
        while time.monotonic() < until:
            if not self.settle():
                return False
            if self._none_more():
                return True
        return False

    def note(self) -> None:
        """Remember what they have taken of the processor so far."""
        self._exactly = {pid: processes.ran_s(pid) for pid in self._still}
        self._spent = {pid: processes.spent_s(pid) for pid in self._still}
        self._since = time.monotonic()

    def look(self, *, everywhere: bool = False) -> None:
        """Note what they took of the processor since they were stopped, or last looked at."""
        if not self._still:
            return
        self._none_more()
        now = time.monotonic()
        self._held_s += now - self._since
        spent = self._spent_by(frozenset() if everywhere else self._strangers)
        self._ran_s += _more(spent, self._spent)
        self._spent, self._since = spent, now
        exactly = {pid: processes.ran_s(pid) for pid in self._still}
        self._woke_s += _more(exactly, self._exactly)
        self._exactly = exactly

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Note what they take of the processor in the other side's window.

        On its own: a referee may work ten times as long as the windows last, and a tenth of that
        would be all of the other side's time.
        """
        began, before = time.monotonic(), {pid: processes.spent_s(pid) for pid in self._still}
        try:
            yield
        finally:
            if before:
                self._beside_s += time.monotonic() - began
                self._beside_ran_s += _more(self._spent_by(self._strangers), before)

    def _spent_by(self, strangers: Set[str]) -> dict[int, float]:
        return {pid: processes.spent_s(pid) for pid in self._processes(strangers) | self._still}

    @property
    def ran_s(self) -> float:
        """The processor time that they took while they were to stand still."""
        return max(self._woke_s, self._ran_s, self._beside_ran_s)

    @property
    def restless(self) -> bool:
        """Whether they ran while they were to stand still."""
        return (
            self._woke_s > WOKE_S
            or self._ran_s > max(RESTLESS_S, RESTLESS * self._held_s)
            or self._beside_ran_s > max(RESTLESS_S, RESTLESS * self._beside_s)
        )

    def end(self) -> None:
        """Let them go on."""
        for pid in self._still:
            _signal(pid, signal.SIGCONT)
        self._let_go, self._let_go_at = self._still, time.monotonic()
        self._still, self._spent = set(), {}

    def eldest(self) -> int:
        """Return the runner among them: nobody below the keeper's first process is older."""
        return min(self._still, key=lambda pid: (processes.began(pid), pid), default=0)

    def favour_held(self) -> None:
        """Let those that are held still go before strangers, once they go on."""
        for pid in self._still:
            _favour(pid)

    def favour(self) -> None:
        """Let them go before strangers for good: trusted ones only."""
        for pid in self._processes(self._strangers):
            _favour(pid)

    def _family(self) -> set[int]:
        """Return their processes as parents know them, which costs a tenth of asking everybody.

        The kernel's lists may miss one while processes come and go: once all are stopped none do.
        """
        if not processes.LISTED:
            return self._processes(self._strangers)
        return processes.below(
            {first for keeper in self._keepers for first in processes.children_of(keeper)}
        )

    def _processes(self, strangers: Set[str]) -> set[int]:
        found: set[int] = set()
        for keeper in self._keepers:
            below = set(descendants(keeper, strangers))
            found |= {pid for pid in below if processes.parent_of(pid) != keeper}
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
    return {pid for pid in below if processes.parent_of(pid) == parent}
