"""The arithmetic of restarts."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from actors.supervisor.processes.restarts import (
    FIRST_DELAY_S,
    MAX_DELAY_S,
    DeathTimes,
    RestartIntensity,
)

gaps = st.lists(st.floats(0.001, 200.0), min_size=1, max_size=40)
intensities = st.builds(
    RestartIntensity, limit=st.integers(0, 12), period_s=st.sampled_from([1.0, 60.0, 300.0])
)


def _die(gaps: list[float], intensity: RestartIntensity) -> tuple[DeathTimes, list[float]]:
    times, deaths, now = [], DeathTimes(), 0.0
    for gap in gaps:
        now += gap
        times.append(now)
        deaths = deaths.add(now, intensity)
    return deaths, times


@given(gaps, intensities)
def test_exceeded_means_more_deaths_than_the_limit_within_the_window(
    gaps: list[float], intensity: RestartIntensity
) -> None:
    """The supervisor gives up exactly when the last window holds more deaths than allowed."""
    deaths, times = _die(gaps, intensity)
    recent = [time for time in times if time > times[-1] - intensity.period_s]
    assert deaths.has_exceeded(intensity) == (len(recent) > intensity.limit)


@given(gaps, intensities, st.integers())
def test_a_delay_is_nothing_or_between_the_first_and_the_most(
    gaps: list[float], intensity: RestartIntensity, seed: int
) -> None:
    """No wait is ever shorter than the first one or longer than the cap, but none at all."""
    deaths, _ = _die(gaps, intensity)
    delay = deaths.delay_s(random.Random(seed))
    assert delay == 0.0 or FIRST_DELAY_S <= delay <= MAX_DELAY_S


@given(gaps, intensities, st.integers())
def test_the_first_death_after_a_quiet_spell_costs_no_wait(
    gaps: list[float], intensity: RestartIntensity, seed: int
) -> None:
    """Whatever happened before, a quiet window forgives: the next start is at once."""
    deaths, times = _die(gaps, intensity)
    late = deaths.add(times[-1] + intensity.period_s + 0.001, intensity)
    assert late.delay_s(random.Random(seed)) == 0.0


@given(st.integers())
def test_waits_grow_in_a_storm(seed: int) -> None:
    """Deaths in a row wait longer and longer: 0, about 0.5, 1, 2, 4 … up to 30 seconds."""
    rng, deaths, intensity = (
        random.Random(seed),
        DeathTimes(),
        RestartIntensity(limit=99, period_s=300.0),
    )
    waits = []
    for second in range(12):
        deaths = deaths.add(float(second), intensity)
        waits.append(deaths.delay_s(rng))
    assert waits[0] == 0.0
    assert 0.5 <= waits[1] <= 0.625
    assert waits[:6] == sorted(set(waits[:6]))
    assert waits[-1] >= 22.5
