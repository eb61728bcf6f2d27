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

from actors import procfs
from actors.evaluator.sandbox import freezer
from actors.evaluator.sandbox.freezer import ProcessFreezer
from actors.procfs import cpu_time_s, living_descendants

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
        while len(living_descendants(started[-1].pid)) < 2:
            assert time.monotonic() < until
            time.sleep(0.01)
        return started[-1].pid

    yield start
    for process in started:
        for pid in [*living_descendants(process.pid), process.pid]:
            os.kill(pid, signal.SIGKILL)
        process.wait()


def taken_s(pids: list[int]) -> float:
    """Return the processor time that they take in a while."""
    before = sum(map(cpu_time_s, pids))
    time.sleep(0.3)
    return sum(map(cpu_time_s, pids)) - before


def test_a_family_stands_still_and_goes_on(family: Callable[[str], int]) -> None:
    """Stopped they take nothing, and nobody calls them restless; continued they run again."""
    strangers = procfs.all_pids()
    keeper = family(BUSY)
    freezer = ProcessFreezer({keeper}, strangers)
    assert taken_s(living_descendants(keeper)) > 0
    freezer.freeze()
    assert taken_s(living_descendants(keeper)) == 0
    freezer.account_cpu(everywhere=True)
    assert not freezer.ran_while_frozen
    freezer.thaw()
    assert taken_s(living_descendants(keeper)) > 0


NAMELESS = """__import__("ctypes").CDLL(None).prctl(15, b"\\xff) \\xfe")"""


def test_no_process_is_overlooked_for_its_name(family: Callable[[str], int]) -> None:
    """A process may be called by bytes that are no text: what it takes and who it is counts."""
    keeper = family(NAMELESS)
    first, busy = sorted(living_descendants(keeper))
    until = time.monotonic() + 10
    while b"\xff" not in Path(f"/proc/{busy}/stat").read_bytes():
        assert time.monotonic() < until
        time.sleep(0.01)
    assert taken_s([busy]) > 0
    assert procfs.parent_of(busy) == first
    assert procfs.start_ticks(busy) < sys.maxsize


def test_a_process_with_a_reused_pid_is_found_where_all_are_checked(
    family: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that is given again hides a process from the quick way, and from that one alone.

    So where the kernel keeps no lists of children; where it does nobody can hide.
    """
    monkeypatch.setattr(procfs, "HAS_CHILDREN_FILE", False)
    hidden, seen = family(BUSY), family(IDLE)
    freezer = ProcessFreezer({hidden, seen}, {str(pid) for pid in living_descendants(hidden)})
    freezer.freeze()
    time.sleep(0.3)
    freezer.account_cpu()
    assert not freezer.ran_while_frozen
    freezer.account_cpu(everywhere=True)
    assert freezer.ran_while_frozen
    freezer.thaw()


def test_what_runs_between_two_looks_is_counted_once(family: Callable[[str], int]) -> None:
    """A candidate is looked at in each group: what it took before is not held against it again."""
    keeper = family(BUSY)
    freezer = ProcessFreezer({keeper})
    freezer.freeze()
    for pid in living_descendants(keeper):  # as a timer of the kernel would
        os.kill(pid, signal.SIGCONT)
    time.sleep(0.3)
    for pid in living_descendants(keeper):
        os.kill(pid, signal.SIGSTOP)
    assert freezer.wait_stopped()
    freezer.account_cpu()
    ran = freezer.ran_s
    assert freezer.ran_while_frozen
    freezer.account_cpu(everywhere=True)
    assert freezer.ran_s == ran
    freezer.thaw()


@pytest.mark.parametrize("beside", [True, False])
def test_a_long_referee_leaves_no_room_in_the_other_side_s_time(
    family: Callable[[str], int], monkeypatch: pytest.MonkeyPatch, *, beside: bool
) -> None:
    """A tenth of all the time that it was held may be the whole of the reference's windows.

    So where the kernel counts no nanoseconds; where it does nobody may run at all.
    """
    monkeypatch.setattr(procfs, "thread_cpu_time_s", lambda _pid: 0.0)
    keeper = family(BUSY)
    freezer = ProcessFreezer({keeper})
    freezer.freeze()
    with freezer.while_other_side_runs():
        if beside:
            _burst(keeper)
    if not beside:
        _burst(keeper)
    later = time.monotonic() + 100.0  # in which the referee worked
    monkeypatch.setattr("actors.evaluator.sandbox.freezer.time.monotonic", lambda: later)
    freezer.account_cpu()
    assert freezer.ran_while_frozen is beside


def test_no_process_runs_while_inputs_are_written(family: Callable[[str], int]) -> None:
    """Ten milliseconds, woken by a timer, would be a block's work, and are a tenth of nothing."""
    keeper = family(BUSY)
    freezer = ProcessFreezer({keeper})
    freezer.freeze()
    assert freezer.wait_stopped()
    freezer.account_cpu()
    assert not freezer.ran_while_frozen
    _burst(keeper, 0.01)
    freezer.account_cpu()
    assert freezer.ran_while_frozen


def test_a_running_process_has_not_settled(
    family: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody's memory is read while he may still write to it."""
    monkeypatch.setattr(freezer, "SETTLE_S", 0.05)
    keeper = family(BUSY)
    still = ProcessFreezer({keeper})
    still.freeze()
    assert still.wait_stopped()
    for pid in living_descendants(keeper):
        os.kill(pid, signal.SIGCONT)
    assert not still.wait_stopped()


def test_a_process_started_while_frozen_is_stopped_and_counted(
    family: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer wakes one for a moment, in which it starts another that nobody has stopped."""
    keeper = family(BUSY)
    freezer = ProcessFreezer({keeper})
    monkeypatch.setattr(freezer, "_listed_processes", set)  # as if it were not there yet
    freezer.freeze()
    monkeypatch.undo()
    while sum(map(cpu_time_s, living_descendants(keeper))) < 0.1:
        time.sleep(0.01)
    assert freezer.wait_all_stopped()
    freezer.account_cpu()
    assert freezer.ran_while_frozen
    assert freezer.wait_stopped()


def _burst(keeper: int, seconds: float = 0.3) -> None:
    for pid in living_descendants(keeper):  # as a timer of the kernel would
        os.kill(pid, signal.SIGCONT)
    time.sleep(seconds)
    for pid in living_descendants(keeper):
        os.kill(pid, signal.SIGSTOP)
