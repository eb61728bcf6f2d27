"""How long a guest waits: laws with a clock that the test moves."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from actors.supervisor.guest_loop import MAX_COUNTED_GAP_S, SilenceTimeout

STEPS = st.lists(st.floats(0.01, MAX_COUNTED_GAP_S), min_size=1, max_size=200)


@given(steps=STEPS, limit=st.floats(0.0, 60.0), usual=st.floats(0.1, 60.0))
def test_the_wait_for_a_silent_run_ends_at_the_limit(
    steps: list[float], limit: float, usual: float
) -> None:
    """It is not shorter, and longer by one check at most; usual silence never ends it."""
    silence = SilenceTimeout(limit, usual_s=usual, now=100.0)
    now = 100.0
    for step in steps:
        silent_s, now = now + step - 100.0, now + step
        silence.update(now, -math.inf)
        if abs(silent_s - max(limit, usual)) > 1e-6:
            assert (silent_s > max(limit, usual)) == silence.has_expired
        assert silence.is_suspicious or not silence.has_expired


@given(before=STEPS, after=STEPS)
def test_a_message_restarts_the_wait(before: list[float], after: list[float]) -> None:
    """Silence before the last message does not count."""
    spoken = SilenceTimeout(3.0, usual_s=1.0, now=0.0)
    now = 0.0
    for step in before:
        now += step
        spoken.update(now, -math.inf)
    now += 0.5
    spoken.update(now, now)
    heard, restarted = now, SilenceTimeout(3.0, usual_s=1.0, now=now)
    for step in after:
        now += step
        spoken.update(now, heard)
        restarted.update(now, -math.inf)
        assert restarted.has_expired == spoken.has_expired


def test_the_time_in_which_a_guest_was_stopped_does_not_count() -> None:
    """An hour between two checks was a stop of the guest (Ctrl-Z): it could not hear the run."""
    silence = SilenceTimeout(60.0, usual_s=4.0, now=0.0)
    silence.update(3600.0, -math.inf)
    assert not silence.is_suspicious
