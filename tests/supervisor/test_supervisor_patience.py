"""How long a guest waits: laws by a hand-moved clock."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from actors.supervisor.patience import STEP_S, Patience

STEPS = st.lists(st.floats(0.01, STEP_S), min_size=1, max_size=200)


@given(steps=STEPS, limit=st.floats(0.0, 60.0), usual=st.floats(0.1, 60.0))
def test_a_silent_run_is_waited_for_as_long_as_was_said(
    steps: list[float], limit: float, usual: float
) -> None:
    """Never shorter, never longer than to the next look; silence that is usual ends nothing."""
    patience = Patience(limit, usual_s=usual, now=100.0)
    now = 100.0
    for step in steps:
        alone, now = now + step - 100.0, now + step
        patience.look(now, -math.inf)
        if abs(alone - max(limit, usual)) > 1e-6:
            assert (alone > max(limit, usual)) == patience.spent
        assert patience.worried or not patience.spent


@given(before=STEPS, after=STEPS)
def test_one_word_and_the_wait_begins_anew(before: list[float], after: list[float]) -> None:
    """What was silent before the last word does not count."""
    once = Patience(3.0, usual_s=1.0, now=0.0)
    now = 0.0
    for step in before:
        now += step
        once.look(now, -math.inf)
    now += 0.5
    once.look(now, now)
    heard, anew = now, Patience(3.0, usual_s=1.0, now=now)
    for step in after:
        now += step
        once.look(now, heard)
        anew.look(now, -math.inf)
        assert anew.spent == once.spent


def test_a_machine_that_was_stopped_has_not_waited() -> None:
    """An hour between two looks was our own (Ctrl-Z): the run could not be heard then."""
    patience = Patience(60.0, usual_s=4.0, now=0.0)
    patience.look(3600.0, -math.inf)
    assert not patience.worried
