"""Who goes first: of calls that share a long beginning, one alone until the server has it cached.

A cache entry can be read once the first reply that made it has begun; identical calls at the same
moment all miss and all pay for it.  So the first call with a beginning goes ahead, the others wait
until its reply begins (or it fails: then the next goes first).  An entry that nobody used for
five minutes is gone, and the next call is a first one again.

For one process: planner, coder and debugger have the same beginning, but an attempt goes through
them one after the other, so what the planner paid for is warm when the coder asks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

CACHE_LIFETIME_S = 300.0


@dataclass(slots=True)
class _SharedPrefix:
    """One shared beginning, as far as this process knows."""

    cached_until: float = 0.0
    has_leader: bool = False  # a first call is under way


class PromptCacheGate:
    """The beginnings that a server has at hand; safe to use from several threads."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, kept_s: float = CACHE_LIFETIME_S
    ) -> None:
        self._clock = clock
        self._kept_s = kept_s
        self._prefixes: dict[str, _SharedPrefix] = {}
        self._changed = threading.Condition()

    @contextmanager
    def wait_turn(self, prefix: str) -> Iterator[Callable[[bool], None]]:
        """Wait for a call's turn; inside, say once that its reply has begun, and if it is cached.

        What a server does not cache (too short, no caching there) holds nobody up again.
        """
        leads = self._enter(prefix)

        def begun(cached: bool) -> None:
            nonlocal leads
            until = self._clock() + self._kept_s if cached else float("inf")
            self._leave(prefix, leads, until)
            leads = False

        try:
            yield begun
        finally:
            if leads:
                self._leave(prefix, leads, 0.0)

    def _enter(self, key: str) -> bool:
        """Return whether this call goes first, once it may go."""
        with self._changed:
            one = self._prefixes.setdefault(key, _SharedPrefix())
            while self._clock() >= one.cached_until:
                if not one.has_leader:
                    one.has_leader = True
                    return True
                self._changed.wait()
            return False

    def _leave(self, key: str, led: bool, warm_until: float) -> None:
        with self._changed:
            one = self._prefixes[key]
            one.cached_until = max(one.cached_until, warm_until)
            if led:
                one.has_leader = False
            self._changed.notify_all()
