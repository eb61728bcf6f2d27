"""Times of steps on a machine that other programs use."""

from __future__ import annotations

import time

import pytest
import torch

from actors.adopt.check import step_timing
from actors.adopt.model import host_clocks


def test_a_step_is_not_charged_for_waiting_for_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says that the thread waited is no time of the step; sleep is."""
    waited = iter([1.0, 1.03])
    monkeypatch.setattr(step_timing, "waited_seconds", lambda: next(waited))
    spent_ms = step_timing._timed(lambda: time.sleep(0.05), torch.device("cpu"))
    assert 19 <= spent_ms < 1000


def test_a_wait_between_two_readings_makes_no_time_negative(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before: a preemption beside the step was taken off it, and an interval began at -27×."""
    readings = iter([0.0, 0.02])

    def waited() -> float:
        reading = next(readings)
        time.sleep(reading)  # the processor is lost before the second reading
        return reading

    monkeypatch.setattr(step_timing, "waited_seconds", waited)
    assert step_timing._timed(lambda: None, torch.device("cpu")) >= 0.0


def test_without_the_system_s_figures_nothing_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another system has no such file: times are those of the clock."""
    assert host_clocks.waited_seconds() >= 0.0
    monkeypatch.setattr(host_clocks, "SCHEDULER", host_clocks.SCHEDULER / "absent")
    assert host_clocks.waited_seconds() == 0.0
