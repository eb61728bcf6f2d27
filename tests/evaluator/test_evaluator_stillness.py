"""Laws of holding still: all of a candidate's processes are, nobody else's, and cheats are seen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.evaluator.isolation.keeper import descendants, everybody
from actors.evaluator.racing import processes, stillness
from actors.evaluator.racing.processes import spent_s
from actors.evaluator.racing.stillness import Stillness

# A keeper, its first process (which is left running, and idle), and a child of that.
FAMILY = """
import os, time
if not os.fork():
    busy = not os.fork()
    while True:
        {work} if busy else time.sleep(60)
time.sleep(60)
"""
BUSY, IDLE = "0", "time.sleep(60)"


@pytest.fixture
def family() -> Iterator[Callable[[str], int]]:
    """Start a keeper with processes below it; return its number."""
    started: list[subprocess.Popen[bytes]] = []

    def start(work: str) -> int:
        started.append(subprocess.Popen([sys.executable, "-c", FAMILY.format(work=work)]))
        until = time.monotonic() + 10
        while len(descendants(started[-1].pid)) < 2:
            assert time.monotonic() < until
            time.sleep(0.01)
        return started[-1].pid

    yield start
    for process in started:
        for pid in [*descendants(process.pid), process.pid]:
            os.kill(pid, signal.SIGKILL)
        process.wait()


def taken_s(pids: list[int]) -> float:
    """Return the processor time that they take in a while."""
    before = sum(map(spent_s, pids))
    time.sleep(0.3)
    return sum(map(spent_s, pids)) - before


def test_a_family_stands_still_and_goes_on(family: Callable[[str], int]) -> None:
    """Stopped they take nothing, and nobody calls them restless; continued they run again."""
    strangers = everybody()
    keeper = family(BUSY)
    still = Stillness({keeper}, strangers)
    assert taken_s(descendants(keeper)) > 0
    still.begin()
    assert taken_s(descendants(keeper)) == 0
    still.look(everywhere=True)
    assert not still.restless
    still.end()
    assert taken_s(descendants(keeper)) > 0


NAMELESS = """__import__("ctypes").CDLL(None).prctl(15, b"\\xff) \\xfe")"""


def test_nobody_is_overlooked_for_a_name(family: Callable[[str], int]) -> None:
    """A process may be called by bytes that are no text: what it takes and who it is counts."""
    keeper = family(NAMELESS)
    first, busy = sorted(descendants(keeper))
    until = time.monotonic() + 10
    while b"\xff" not in Path(f"/proc/{busy}/stat").read_bytes():
        assert time.monotonic() < until
        time.sleep(0.01)
    assert taken_s([busy]) > 0
    assert processes.parent_of(busy) == first
    assert processes.began(busy) < sys.maxsize


def test_who_has_the_number_of_a_stranger_is_found_where_all_are_looked_at(
    family: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that is given again hides a process from the quick way, and from that one alone.

    So where the kernel keeps no lists of children; where it does nobody can hide.
    """
    monkeypatch.setattr(processes, "LISTED", False)
    hidden, seen = family(BUSY), family(IDLE)
    still = Stillness({hidden, seen}, {str(pid) for pid in descendants(hidden)})
    still.begin()
    time.sleep(0.3)
    still.look()
    assert not still.restless
    still.look(everywhere=True)
    assert still.restless
    still.end()


def test_what_runs_between_two_looks_is_counted_once(family: Callable[[str], int]) -> None:
    """A candidate is looked at in each group: what it took before is not held against it again."""
    keeper = family(BUSY)
    still = Stillness({keeper})
    still.begin()
    for pid in descendants(keeper):  # as a timer of the kernel would
        os.kill(pid, signal.SIGCONT)
    time.sleep(0.3)
    for pid in descendants(keeper):
        os.kill(pid, signal.SIGSTOP)
    assert still.settle()
    still.look()
    ran = still.ran_s
    assert still.restless
    still.look(everywhere=True)
    assert still.ran_s == ran
    still.end()


@pytest.mark.parametrize("beside", [True, False])
def test_a_long_referee_leaves_no_room_in_the_other_side_s_time(
    family: Callable[[str], int], monkeypatch: pytest.MonkeyPatch, *, beside: bool
) -> None:
    """A tenth of all the time that it was held may be the whole of the reference's windows.

    So where the kernel counts no nanoseconds; where it does nobody may run at all.
    """
    monkeypatch.setattr(processes, "ran_s", lambda _pid: 0.0)
    keeper = family(BUSY)
    still = Stillness({keeper})
    still.begin()
    with still.beside():
        if beside:
            _burst(keeper)
    if not beside:
        _burst(keeper)
    later = time.monotonic() + 100.0  # in which the referee worked
    monkeypatch.setattr("actors.evaluator.racing.stillness.time.monotonic", lambda: later)
    still.look()
    assert still.restless is beside


def test_nobody_runs_for_a_moment_while_inputs_are_written(family: Callable[[str], int]) -> None:
    """Ten milliseconds, woken by a timer, would be a block's work, and are a tenth of nothing."""
    keeper = family(BUSY)
    still = Stillness({keeper})
    still.begin()
    assert still.settle()
    still.look()
    assert not still.restless
    _burst(keeper, 0.01)
    still.look()
    assert still.restless


def test_who_has_not_stopped_has_not_settled(
    family: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody's memory is read while he may still write to it."""
    monkeypatch.setattr(stillness, "SETTLE_S", 0.05)
    keeper = family(BUSY)
    still = Stillness({keeper})
    still.begin()
    assert still.settle()
    for pid in descendants(keeper):
        os.kill(pid, signal.SIGCONT)
    assert not still.settle()


def test_who_is_started_while_all_are_held_still_is_stopped_and_counted(
    family: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer wakes one for a moment, in which it starts another that nobody has stopped."""
    keeper = family(BUSY)
    still = Stillness({keeper})
    monkeypatch.setattr(still, "_family", set)  # as if it were not there yet
    still.begin()
    monkeypatch.undo()
    while sum(map(spent_s, descendants(keeper))) < 0.1:
        time.sleep(0.01)
    assert still.settle_all()
    still.look()
    assert still.restless
    assert still.settle()


def _burst(keeper: int, seconds: float = 0.3) -> None:
    for pid in descendants(keeper):  # as a timer of the kernel would
        os.kill(pid, signal.SIGCONT)
    time.sleep(seconds)
    for pid in descendants(keeper):
        os.kill(pid, signal.SIGSTOP)
