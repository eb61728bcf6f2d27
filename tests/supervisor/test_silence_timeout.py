"""How long a guest waits: laws by a hand-moved clock."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from actors.supervisor.guest_loop import MAX_COUNTED_GAP_S, SilenceTimeout

STEPS = st.lists(st.floats(0.01, MAX_COUNTED_GAP_S), min_size=1, max_size=200)


@given(steps=STEPS, limit=st.floats(0.0, 60.0), usual=st.floats(0.1, 60.0))
def test_a_silent_run_is_waited_for_as_long_as_was_said(
    steps: list[float], limit: float, usual: float
) -> None:
    """Never shorter, never longer than to the next look; silence that is usual ends nothing."""
    silence = SilenceTimeout(limit, usual_s=usual, now=100.0)
    now = 100.0
    for step in steps:
        alone, now = now + step - 100.0, now + step
        silence.update(now, -math.inf)
        if abs(alone - max(limit, usual)) > 1e-6:
            assert (alone > max(limit, usual)) == silence.has_expired
        assert silence.is_suspicious or not silence.has_expired


@given(before=STEPS, after=STEPS)
def test_one_word_and_the_wait_begins_anew(before: list[float], after: list[float]) -> None:
    """What was silent before the last word does not count."""
    once = SilenceTimeout(3.0, usual_s=1.0, now=0.0)
    now = 0.0
    for step in before:
        now += step
        once.update(now, -math.inf)
    now += 0.5
    once.update(now, now)
    heard, anew = now, SilenceTimeout(3.0, usual_s=1.0, now=now)
    for step in after:
        now += step
        once.update(now, heard)
        anew.update(now, -math.inf)
        assert anew.has_expired == once.has_expired


def test_a_machine_that_was_stopped_has_not_waited() -> None:
    """An hour between two looks was our own (Ctrl-Z): the run could not be heard then."""
    silence = SilenceTimeout(60.0, usual_s=4.0, now=0.0)
    silence.update(3600.0, -math.inf)
    assert not silence.is_suspicious
