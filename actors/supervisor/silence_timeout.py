"""How long a machine that joins waits for a run of which it hears nothing.

From outside, a run that is over looks like one that has not begun: nobody listens.  So the wait has
an end.  Pure; only time in which we looked is counted: whoever was stopped himself (Ctrl-Z) has not
waited.
"""

from __future__ import annotations

STEP_S = 1.0  # between two looks; a longer gap was ours


class SilenceTimeout:
    """Counts the time since the last word."""

    def __init__(self, limit_s: float, *, usual_s: float, now: float) -> None:
        """`usual_s`: silence that means nothing, and ends no visit however short the limit."""
        self.usual_s = usual_s
        self._limit_s = limit_s
        self._alone_s = 0.0
        self._looked = now

    def update(self, now: float, heard: float) -> None:
        """Take in that the last word came at `heard`, on the same clock as `now`."""
        if heard > self._looked:
            self._alone_s = 0.0
        else:
            self._alone_s += min(now - self._looked, STEP_S)
        self._looked = now

    @property
    def is_suspicious(self) -> bool:
        """Whether it is time to look elsewhere for what became of the run."""
        return self._alone_s >= self.usual_s

    @property
    def has_expired(self) -> bool:
        """Whether nothing came for too long."""
        return self._alone_s >= max(self._limit_s, self.usual_s)
