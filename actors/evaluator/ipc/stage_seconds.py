"""Where the seconds of a verdict go: by the stage that is under way, and the order waited for.

One account for a zygote and its children.  The thread that has the device writes it;
`scripts/benchmarks/judge_mix.py` reads it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

REST = "rest"


class StageSeconds:
    """Seconds by stage.  A stage inside of another one counts for itself alone."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: the clock."""
        self._now = now
        self._stages = [REST]  # that are under way, innermost last
        self._order = ""  # that is waited for
        self._since = now()
        self._spent: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what a block of code takes for this stage."""
        self._count()
        self._stages.append(name)
        try:
            yield
        finally:
            self._count()
            self._stages.pop()

    @contextmanager
    def waiting(self, order: str) -> Iterator[None]:
        """Count what a block of code takes for this order in the stage that is under way."""
        self._count()
        self._order = order
        try:
            yield
        finally:
            self._count()
            self._order = ""

    def take(self) -> dict[str, float]:
        """Return the seconds since the last time, and begin anew."""
        self._count()
        taken, self._spent = self._spent, {}
        return taken

    def _count(self) -> None:
        now = self._now()
        key = f"{self._stages[-1]}: {self._order}" if self._order else self._stages[-1]
        self._spent[key] = self._spent.get(key, 0.0) + now - self._since
        self._since = now
