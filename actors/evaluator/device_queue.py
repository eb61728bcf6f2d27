"""The turns on one device: which of the waiting callers is next.

To judge a candidate of another task, the device first loads that task's reference, which takes
seconds.  So callers with work on the task that was loaded last go first, and the others wait for a
bounded number of turns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from actors.evaluator.sandbox.child_client import EvaluationCancelledError
from actors.work_context import EvaluationContext

LONG_WAIT_S = 1.0  # a shorter wait for the device is not logged
POLL_S = 0.1  # how often a waiting caller is asked whether it still wants its turn
MAX_PASSED = 8  # later callers that go before an earlier one; an evaluator holds fewer leases


@dataclass(eq=False)
class Waiter:
    """One caller that waits for its turn."""

    task: str  # the name of the task that it works on; "": the turn needs no reference
    thread: int
    passed: int = 0  # later callers that went before it


def next_place(waiting: Sequence[Waiter], loaded: str) -> int:
    """Return the place of the waiter that is next, of waiters in the order of their calls.

    It is the first one that works on the loaded task or on none, unless the very first one has
    been passed too often.
    """
    if waiting[0].passed >= MAX_PASSED:
        return 0
    fitting = (place for place, one in enumerate(waiting) if one.task in ("", loaded))
    return next(fitting, 0)


class DeviceQueue:
    """The callers of one device, of which one at a time has its turn."""

    def __init__(self) -> None:
        self._waiting: list[Waiter] = []
        self._holder: Waiter | None = None
        self._loaded = ""  # the task of the last turn that had one
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, task: str, while_waiting: Callable[[], None]) -> Iterator[None]:
        """Have a turn for work on `task`; a turn inside of a thread's own turn is part of it.

        `while_waiting` is called every `POLL_S` before the turn, and may raise.
        """
        thread = threading.get_ident()
        if self._holder is not None and self._holder.thread == thread:
            yield
            return
        waiter = Waiter(task, thread)
        try:
            with self._changed:
                self._waiting.append(waiter)
                self._choose()
            while True:
                with self._changed:
                    if self._holder is waiter:
                        break
                    self._changed.wait(POLL_S)
                while_waiting()
            yield
        finally:
            with self._changed:
                if self._holder is waiter:
                    self._holder = None
                else:
                    self._waiting.remove(waiter)
                self._choose()

    @property
    def waiting(self) -> int:
        """How many callers wait."""
        return len(self._waiting)

    def _choose(self) -> None:
        """Give the device to the next waiter if it is free."""
        if self._holder is not None or not self._waiting:
            return
        place = next_place(self._waiting, self._loaded)
        for earlier in self._waiting[:place]:
            earlier.passed += 1
        self._holder = self._waiting.pop(place)
        self._loaded = self._holder.task or self._loaded
        self._changed.notify_all()


class DeviceWait:
    """A caller's wait for its turn on the device, which is logged once it is long."""

    def __init__(self, context: EvaluationContext, long_s: float = LONG_WAIT_S) -> None:
        self._context = context
        self._long_s = long_s
        self._began = time.monotonic()
        self._is_logged = False

    def poll(self) -> None:
        """Log a long wait; raise `EvaluationCancelledError` when the work is not wanted."""
        if self._context.is_revoked():
            raise EvaluationCancelledError
        if not self._is_logged and time.monotonic() - self._began > self._long_s:
            self._is_logged = True
            self._context.log_step("waiting for the device", why="another candidate is on it")

    def end(self) -> None:
        """Log the end of a long wait."""
        if self._is_logged:
            seconds = round(time.monotonic() - self._began, 1)
            self._context.log_step("the device is free", waited_s=seconds)
