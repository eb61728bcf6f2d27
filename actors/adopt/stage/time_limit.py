"""How long a command may take, and what of it is left for a stage."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from actors.exit_status import ExitStatus


class TimeLimit:
    """A moment at which something has to be over; without one it may take as long as it takes."""

    def __init__(
        self, seconds: float = math.inf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`seconds`: from now."""
        self._clock = clock
        self._until = clock() + seconds

    @property
    def left_s(self) -> float:
        """The seconds that are left; 0 where it is over."""
        return max(self._until - self._clock(), 0.0)

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return self.left_s <= 0.0

    def part(self, share: float) -> TimeLimit:
        """Return a limit for a part of what is left."""
        return TimeLimit(self.left_s * share, self._clock)


UNLIMITED = TimeLimit()


def clock_text(seconds: float) -> str:
    """Return a time as minutes and seconds: "12:05"."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


@contextmanager
def process_limit(limit: TimeLimit, line: Callable[[], str]) -> Iterator[None]:
    """End this process at the limit with `line`, also where the user's code hangs.

    Every file of a stage is written whole or not at all, so that the same command goes on.
    """

    def expire() -> None:
        sys.stderr.write(f"adopt: {line()}\n")
        sys.stderr.flush()
        os._exit(ExitStatus.STOPPED)

    if math.isinf(limit.left_s):
        yield
        return
    timer = threading.Timer(limit.left_s, expire)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
