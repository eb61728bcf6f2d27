"""One call first: calls that share a long prefix wait until the server has it cached.

A cache entry can be read once the reply that made it has begun.  Identical calls at the same moment
all miss, and all pay for the prefix.  So the first call with a prefix goes alone; the others wait
until its reply begins, or until it fails and the next call goes alone.  A server drops an entry
that was not used for five minutes; then the next call is a first one again.

The gate works within one process.  Planner, coder and debugger share the prefix across processes,
but an attempt passes through them one after the other, so the coder finds it in the cache.
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
    """One shared prefix, as far as this process knows."""

    cached_until: float = 0.0
    has_leader: bool = False  # a first call is running


class PromptCacheGate:
    """The prefixes that a server has cached; safe to use from several threads."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, lifetime_s: float = CACHE_LIFETIME_S
    ) -> None:
        self._clock = clock
        self._lifetime_s = lifetime_s
        self._prefixes: dict[str, _SharedPrefix] = {}
        self._changed = threading.Condition()

    @contextmanager
    def wait_turn(self, prefix: str) -> Iterator[Callable[[bool], None]]:
        """Wait for a call's turn; yield a function to call when the reply has begun.

        Its argument tells whether the server has the prefix cached.  A prefix that a server does
        not cache (it is too short, or the server has no cache) makes no later call wait.
        """
        leads = self._enter(prefix)

        def begun(cached: bool) -> None:
            nonlocal leads
            until = self._clock() + self._lifetime_s if cached else float("inf")
            self._leave(prefix, leads, until)
            leads = False

        try:
            yield begun
        finally:
            if leads:
                self._leave(prefix, leads, 0.0)

    def _enter(self, key: str) -> bool:
        """Wait until this call may go; return whether it goes first."""
        with self._changed:
            one = self._prefixes.setdefault(key, _SharedPrefix())
            while self._clock() >= one.cached_until:
                if not one.has_leader:
                    one.has_leader = True
                    return True
                self._changed.wait()
            return False

    def _leave(self, key: str, was_leader: bool, cached_until: float) -> None:
        with self._changed:
            one = self._prefixes[key]
            one.cached_until = max(one.cached_until, cached_until)
            if was_leader:
                one.has_leader = False
            self._changed.notify_all()
