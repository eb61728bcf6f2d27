"""Honest judgments: how often each is judged, what is written down, and what is counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from actors.evaluator.timing.net_time import TimedWindow
from protocol.values import Outcome, Seconds, Verdict
from scripts.benchmarks.honest_judgments import Pace
from scripts.benchmarks.judgment_details import DetailsFile, RecordedProcess, RecordedTimes
from scripts.benchmarks.judgment_spread import JudgedModule, spread_lines


class HandMovedClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def turns_of(seconds: list[float], count: int, until_s: float) -> list[int]:
    """Return how often candidates are judged whose judgments take so long."""
    clock = HandMovedClock()
    pace = Pace(len(seconds), count, clock() + until_s)
    turns = []
    for judgment_s in seconds:
        turns.append(0)
        for _turn in pace.turns(clock):
            clock.now += judgment_s
            turns[-1] += 1
    return turns


@pytest.mark.parametrize(
    ("seconds", "count", "until_s", "turns"),
    [
        ([1.0] * 4, 12, 100.0, [3, 3, 3, 3]),
        ([1.0] * 4, 10, 100.0, [3, 3, 2, 2]),
        # A slow one has fewer, and the others have more in its place.
        ([10.0, 1.0, 1.0, 1.0], 12, 40.0, [2, 4, 3, 3]),
        # Where the time is short each has one all the same, and as long as there is any.
        ([4.0] * 4, 12, 15.0, [2, 1, 1, 0]),
    ],
)
def test_each_candidate_has_its_turn(
    seconds: list[float], count: int, until_s: float, turns: list[int]
) -> None:
    """No candidate takes the time of those after it, and the number of judgments is kept."""
    assert turns_of(seconds, count, until_s) == turns


def test_what_is_measured_is_written_down_and_adds_up(tmp_path: Path) -> None:
    """A figure can be computed again from the file: each block has its parts."""
    process = RecordedProcess(processor=3)
    times = RecordedTimes(on_host=False, process=process, told_s=[2e-6])
    times.add_empty(TimedWindow(block_s=1e-4, hand_over_s=1e-5), 100)
    window = TimedWindow(block_s=3e-4, hand_over_s=1e-5, call_s=1.9e-6)
    times.add("reference", window, 100)
    times.add("candidate", window, 100)
    path = tmp_path / "details.jsonl"
    details = DetailsFile(path)
    verdict = Verdict(verdict=Outcome.CORRECT, speedup=1.01, seconds=Seconds(time=1.5))
    details.add({"task": "relu", "beside": True}, verdict, {"check": 0.5}, [process])
    head, line = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert head["policy"]["wanted_groups"] == 6
    assert line["task"] == "relu"
    assert line["verdict"]["speedup"] == 1.01
    empty, reference, candidate = line["processes"][0]["blocks"]
    assert empty[:4] == ["empty", 100, 100.0, 10.0]
    assert reference[:6] == ["reference", 100, 300.0, 10.0, 0.0, 1.9]
    assert candidate[5] == 2.0
    assert times.net_us([window], 100) == pytest.approx([1.9])


def test_what_intervals_leave_out_is_counted() -> None:
    """Judgments alone and beside another program are told apart; the truth of each is 1."""
    judged = [
        JudgedModule(name="relu", is_beside=False, speedup=1.0, low=0.99, high=1.01),
        JudgedModule(name="relu", is_beside=False, speedup=0.95, low=0.94, high=0.96),
        JudgedModule(name="relu", is_beside=True, speedup=1.02, low=1.015, high=1.03),
    ]
    alone, beside = spread_lines(judged)
    assert "alone: 2, off by" in alone
    assert "1 exclude 1, 1 by more than 1 %, 1 by more than 3 %" in alone
    assert "1 exclude 1, 1 by more than 1 %, 0 by more than 3 %" in beside
