"""Freezing: it stops all of a candidate's processes and no others, and sees processes that run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.evaluator.sandbox import freezer, process_stats
from actors.evaluator.sandbox.freezer import ProcessFreezer
from actors.evaluator.sandbox.init_process import all_process_names, descendants
from actors.evaluator.sandbox.process_stats import cpu_time_s

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
    """Start an init process with processes below it; return its pid."""
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
    """Return the processor time that processes take in 0.3 s."""
    before = sum(map(cpu_time_s, pids))
    time.sleep(0.3)
    return sum(map(cpu_time_s, pids)) - before


def test_processes_are_frozen_and_thawed(family: Callable[[str], int]) -> None:
    """Frozen processes take no time and are not accused; thawed ones run again."""
    strangers = all_process_names()
    keeper = family(BUSY)
    freezer = ProcessFreezer({keeper}, strangers)
    assert taken_s(descendants(keeper)) > 0
    freezer.freeze()
    assert taken_s(descendants(keeper)) == 0
    freezer.account_cpu(everywhere=True)
    assert not freezer.ran_while_frozen
    freezer.thaw()
    assert taken_s(descendants(keeper)) > 0


NAMELESS = """__import__("ctypes").CDLL(None).prctl(15, b"\\xff) \\xfe")"""


def test_no_process_is_overlooked_for_its_name(family: Callable[[str], int]) -> None:
    """A name may be bytes that are not text; the process and its time are counted."""
    keeper = family(NAMELESS)
    first, busy = sorted(descendants(keeper))
    until = time.monotonic() + 10
    while b"\xff" not in Path(f"/proc/{busy}/stat").read_bytes():
        assert time.monotonic() < until
        time.sleep(0.01)
    assert taken_s([busy]) > 0
    assert process_stats.parent_of(busy) == first
    assert process_stats.start_ticks(busy) < sys.maxsize


def test_a_process_with_a_reused_pid_is_found_where_all_are_checked(
    family: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reused pid hides a process from the quick check, not from the full one.

    The kernel's lists of children, where there are any, leave no such gap.
    """
    monkeypatch.setattr(process_stats, "HAS_CHILDREN_FILE", False)
    hidden, seen = family(BUSY), family(IDLE)
    freezer = ProcessFreezer({hidden, seen}, {str(pid) for pid in descendants(hidden)})
    freezer.freeze()
    time.sleep(0.3)
    freezer.account_cpu()
    assert not freezer.ran_while_frozen
    freezer.account_cpu(everywhere=True)
    assert freezer.ran_while_frozen
    freezer.thaw()


def test_time_between_two_checks_is_counted_once(family: Callable[[str], int]) -> None:
    """A candidate is checked in each group: time of before is not counted again."""
    keeper = family(BUSY)
    freezer = ProcessFreezer({keeper})
    freezer.freeze()
    for pid in descendants(keeper):  # as a timer of the kernel would
        os.kill(pid, signal.SIGCONT)
    time.sleep(0.3)
    for pid in descendants(keeper):
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
    """A tenth of all frozen time may be the whole of the reference's timed windows.

    The rule is for kernels that count no nanoseconds; others permit no time at all.
    """
    monkeypatch.setattr(process_stats, "thread_cpu_time_s", lambda _pid: 0.0)
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
    """Ten milliseconds of a process woken by a timer are found: they are a block's work."""
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
    """The memory of a process is not read while the process may still write to it."""
    monkeypatch.setattr(freezer, "SETTLE_S", 0.05)
    keeper = family(BUSY)
    still = ProcessFreezer({keeper})
    still.freeze()
    assert still.wait_stopped()
    for pid in descendants(keeper):
        os.kill(pid, signal.SIGCONT)
    assert not still.wait_stopped()


def test_a_process_started_while_frozen_is_stopped_and_counted(
    family: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer wakes a process for a moment, in which it starts another, unfrozen one."""
    keeper = family(BUSY)
    freezer = ProcessFreezer({keeper})
    monkeypatch.setattr(freezer, "_family", set)  # as if it were not there yet
    freezer.freeze()
    monkeypatch.undo()
    while sum(map(cpu_time_s, descendants(keeper))) < 0.1:
        time.sleep(0.01)
    assert freezer.wait_all_stopped()
    freezer.account_cpu()
    assert freezer.ran_while_frozen
    assert freezer.wait_stopped()


def _burst(keeper: int, seconds: float = 0.3) -> None:
    for pid in descendants(keeper):  # as a timer of the kernel would
        os.kill(pid, signal.SIGCONT)
    time.sleep(seconds)
    for pid in descendants(keeper):
        os.kill(pid, signal.SIGSTOP)
