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
def test_exceeded_means_more_deaths_than_the_limit_within_the_period(
    gaps: list[float], intensity: RestartIntensity
) -> None:
    """The supervisor gives up exactly when the last period holds more deaths than allowed."""
    deaths, times = _die(gaps, intensity)
    recent = [time for time in times if time > times[-1] - intensity.period_s]
    assert deaths.has_exceeded(intensity) == (len(recent) > intensity.limit)


@given(gaps, intensities, st.integers())
def test_a_delay_is_zero_or_between_the_first_and_the_longest(
    gaps: list[float], intensity: RestartIntensity, seed: int
) -> None:
    """A wait is zero, or not shorter than the first one and not longer than the maximum."""
    deaths, _ = _die(gaps, intensity)
    delay = deaths.delay_s(random.Random(seed))
    assert delay == 0.0 or FIRST_DELAY_S <= delay <= MAX_DELAY_S


@given(gaps, intensities, st.integers())
def test_the_first_death_after_a_quiet_period_costs_no_wait(
    gaps: list[float], intensity: RestartIntensity, seed: int
) -> None:
    """After a quiet period the next start is at once, independent of earlier deaths."""
    deaths, times = _die(gaps, intensity)
    late = deaths.add(times[-1] + intensity.period_s + 0.001, intensity)
    assert late.delay_s(random.Random(seed)) == 0.0


@given(st.integers())
def test_waits_grow_with_deaths_in_a_row(seed: int) -> None:
    """The waits are 0, about 0.5, 1, 2, 4 … up to 30 seconds."""
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
