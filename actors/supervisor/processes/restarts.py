"""When a dead child is restarted: pure arithmetic on times of death.

Two rules.  Intensity: after more than `limit` deaths within `period_s` the supervisor gives up.
Backoff: the first death after a quiet period costs no wait (the time to the next verdict counts);
each further death doubles the wait from `FIRST_DELAY_S` to `MAX_DELAY_S`.  Jitter spreads the
restarts of processes that died together.
"""

from __future__ import annotations

import random

from protocol.values import Value

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 30.0
JITTER = 0.25


class RestartIntensity(Value, frozen=True, kw_only=True):
    """At most `limit` restarts within `period_s` seconds."""

    limit: int
    period_s: float


class DeathTimes(Value, frozen=True, kw_only=True):
    """The times of death in one slot that still count, oldest first (monotonic seconds)."""

    times: tuple[float, ...] = ()

    def add(self, now: float, intensity: RestartIntensity) -> DeathTimes:
        """Return these deaths and one at `now`, without those that do not count any more."""
        since = now - intensity.period_s
        return DeathTimes(times=(*(time for time in self.times if time > since), now))

    def has_exceeded(self, intensity: RestartIntensity) -> bool:
        """Whether there were more deaths than the intensity allows."""
        return len(self.times) > intensity.limit

    def delay_s(self, rng: random.Random) -> float:
        """Return the wait from the last death to the next start."""
        earlier = len(self.times) - 1
        if earlier < 1:
            return 0.0
        # Above 2^16 the maximum decides anyway.
        steady = FIRST_DELAY_S * 2.0 ** min(earlier - 1, 16)
        return min(MAX_DELAY_S, max(FIRST_DELAY_S, steady * rng.uniform(1 - JITTER, 1 + JITTER)))
