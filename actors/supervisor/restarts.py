"""When a child that died is started again: pure arithmetic on times of death.

Two rules.  Intensity: more than `limit` deaths within `window_s` and the supervisor gives up.
Backoff: the first death after a quiet spell costs no wait (the time to the next verdict counts),
each further one doubles it from `FIRST_S` to `MOST_S`, with jitter so that a whole fleet that died
together does not come back together.
"""

from __future__ import annotations

import random

from protocol.values import Value

FIRST_S = 0.5
MOST_S = 30.0
JITTER = 0.25


class Intensity(Value, frozen=True, kw_only=True):
    """At most `limit` restarts within `window_s` seconds."""

    limit: int
    window_s: float


class Deaths(Value, frozen=True, kw_only=True):
    """The times of death of one place that still count, oldest first (monotonic seconds)."""

    times: tuple[float, ...] = ()

    def add(self, now: float, intensity: Intensity) -> Deaths:
        """Return these deaths and one more at `now`, without those that count no longer."""
        since = now - intensity.window_s
        return Deaths(times=(*(time for time in self.times if time > since), now))

    def exceed(self, intensity: Intensity) -> bool:
        """Whether there were more deaths than the intensity allows."""
        return len(self.times) > intensity.limit

    def delay_s(self, rng: random.Random) -> float:
        """Return how long to wait before the next start, after the death added last."""
        earlier = len(self.times) - 1
        if earlier < 1:
            return 0.0
        # Beyond 2^16 the cap decides anyway.
        steady = FIRST_S * 2.0 ** min(earlier - 1, 16)
        return min(MOST_S, max(FIRST_S, steady * rng.uniform(1 - JITTER, 1 + JITTER)))
