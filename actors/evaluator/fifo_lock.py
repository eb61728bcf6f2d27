"""Whose turn it is: one at a time, in the order of asking."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POLL_S = 0.1  # how often one in the row looks whether it is still wanted


class FifoLock:
    """A row of threads for the one device."""

    def __init__(self) -> None:
        self._waiters: list[object] = []
        self._changed = threading.Condition()

    @contextmanager
    def held(self, waiting: Callable[[], None]) -> Iterator[None]:
        """Have the turn; `waiting` is called again and again before, what it raises comes out."""
        place = object()
        with self._changed:
            self._waiters.append(place)
        try:
            with self._changed:
                while self._waiters[0] is not place:
                    self._changed.wait(POLL_S)
                    waiting()
            yield
        finally:
            with self._changed:
                self._waiters.remove(place)
                self._changed.notify_all()
