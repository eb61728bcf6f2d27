"""The time of a task alone: an end that does not depend on how slow the machine is."""

from __future__ import annotations

import functools
import time

import pytest
import torch

from actors.adopt.task_proof import LEAST_CALLS, SERIES, call_us


def test_slow_calls_are_timed_a_few_times_however_many_take_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside other programs a call may take a hundred times as long: the series still end."""
    monkeypatch.setattr("actors.adopt.task_proof.TIMED_S", 0.01)
    made: list[int] = []

    def slow(number: int) -> None:
        made.append(number)
        time.sleep(0.01)

    found = call_us([functools.partial(slow, number) for number in range(64)], torch.device("cpu"))
    assert list(range(SERIES * LEAST_CALLS)) == made  # each has weights of its own
    assert 0.0 < found < 1e4  # a thread that sleeps does not work
