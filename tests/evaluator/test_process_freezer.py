"""The freezer stops all processes of a candidate and no others, and sees those that run anyway."""

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

# An init process, its first process (which keeps running, idle), and a child of the first process.
PROCESS_TREE = """
import os, time
if not os.fork():
    busy = not os.fork()
    while True:
        {work} if busy else time.sleep(60)
time.sleep(60)
"""
BUSY, IDLE = "0", "time.sleep(60)"


@pytest.fixture
def process_tree() -> Iterator[Callable[[str], int]]:
    """Start an init process with processes below it; return its pid."""
    started: list[subprocess.Popen[bytes]] = []

    def start(work: str) -> int:
        started.append(subprocess.Popen([sys.executable, "-c", PROCESS_TREE.format(work=work)]))
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


def cpu_taken_s(pids: list[int]) -> float:
    """Return the processor time that processes take within 0.3 s."""
    before = sum(map(cpu_time_s, pids))
    time.sleep(0.3)
    return sum(map(cpu_time_s, pids)) - before


def test_frozen_processes_take_no_processor_time_and_run_again_when_thawed(
    process_tree: Callable[[str], int],
) -> None:
    """Frozen processes take no processor time and are not accused; thawed ones run again."""
    other_processes = procfs.all_pids()
    init_process = process_tree(BUSY)
    freezer = ProcessFreezer({init_process}, other_processes)
    assert cpu_taken_s(living_descendants(init_process)) > 0
    freezer.freeze()
    assert cpu_taken_s(living_descendants(init_process)) == 0
    freezer.account_cpu(everywhere=True)
    assert not freezer.ran_while_frozen
    freezer.thaw()
    assert cpu_taken_s(living_descendants(init_process)) > 0


BINARY_NAME = """__import__("ctypes").CDLL(None).prctl(15, b"\\xff) \\xfe")"""


def test_no_process_is_overlooked_for_its_name(process_tree: Callable[[str], int]) -> None:
    """A process may have a name that is not text: its time, parent and start are still read."""
    init_process = process_tree(BINARY_NAME)
    first, busy = sorted(living_descendants(init_process))
    until = time.monotonic() + 10
    while b"\xff" not in Path(f"/proc/{busy}/stat").read_bytes():
        assert time.monotonic() < until
        time.sleep(0.01)
    assert cpu_taken_s([busy]) > 0
    assert procfs.parent_of(busy) == first
    assert procfs.start_ticks(busy) < sys.maxsize


def test_a_process_with_a_reused_pid_is_found_where_all_are_checked(
    process_tree: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pid that the kernel gave a second time hides a process from the quick search only.

    This is so where the kernel keeps no lists of children; with the lists no process can hide.
    """
    monkeypatch.setattr(procfs, "HAS_CHILDREN_FILE", False)
    hidden, visible = process_tree(BUSY), process_tree(IDLE)
    freezer = ProcessFreezer({hidden, visible}, {str(pid) for pid in living_descendants(hidden)})
    freezer.freeze()
    time.sleep(0.3)
    freezer.account_cpu()
    assert not freezer.ran_while_frozen
    freezer.account_cpu(everywhere=True)
    assert freezer.ran_while_frozen
    freezer.thaw()


def test_time_between_two_counts_is_counted_once(process_tree: Callable[[str], int]) -> None:
    """The freezer counts in each group: time of an earlier group does not count again."""
    init_process = process_tree(BUSY)
    freezer = ProcessFreezer({init_process})
    freezer.freeze()
    for pid in living_descendants(init_process):  # as a timer of the kernel does
        os.kill(pid, signal.SIGCONT)
    time.sleep(0.3)
    for pid in living_descendants(init_process):
        os.kill(pid, signal.SIGSTOP)
    assert freezer.wait_stopped()
    freezer.account_cpu()
    ran = freezer.ran_s
    assert freezer.ran_while_frozen
    freezer.account_cpu(everywhere=True)
    assert freezer.ran_s == ran
    freezer.thaw()


@pytest.mark.parametrize("in_window", [True, False])
def test_a_long_referee_does_not_permit_work_in_the_other_side_s_window(
    process_tree: Callable[[str], int], monkeypatch: pytest.MonkeyPatch, *, in_window: bool
) -> None:
    """A tenth of the whole frozen time may be as long as all of the reference's windows.

    This is so where the kernel counts no nanoseconds; with them no frozen process may run at all.
    """
    monkeypatch.setattr(procfs, "thread_cpu_time_s", lambda _pid: 0.0)
    init_process = process_tree(BUSY)
    freezer = ProcessFreezer({init_process})
    freezer.freeze()
    with freezer.while_other_side_runs():
        if in_window:
            _run_for(init_process)
    if not in_window:
        _run_for(init_process)
    later = time.monotonic() + 100.0  # the referee worked for so long
    monkeypatch.setattr("actors.evaluator.sandbox.freezer.time.monotonic", lambda: later)
    freezer.account_cpu()
    assert freezer.ran_while_frozen is in_window


def test_no_process_runs_while_inputs_are_written(process_tree: Callable[[str], int]) -> None:
    """A timer that wakes it for ten milliseconds gives a process the time of a whole block."""
    init_process = process_tree(BUSY)
    freezer = ProcessFreezer({init_process})
    freezer.freeze()
    assert freezer.wait_stopped()
    freezer.account_cpu()
    assert not freezer.ran_while_frozen
    _run_for(init_process, 0.01)
    freezer.account_cpu()
    assert freezer.ran_while_frozen


def test_a_running_process_has_not_stopped(
    process_tree: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge reads memory only after the process that may write to it has stopped."""
    monkeypatch.setattr(freezer, "SETTLE_S", 0.05)
    init_process = process_tree(BUSY)
    process_freezer = ProcessFreezer({init_process})
    process_freezer.freeze()
    assert process_freezer.wait_stopped()
    for pid in living_descendants(init_process):
        os.kill(pid, signal.SIGCONT)
    assert not process_freezer.wait_stopped()


def test_a_process_started_while_frozen_is_stopped_and_counted(
    process_tree: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer wakes a process for a moment, in which it starts a process that is not stopped."""
    init_process = process_tree(BUSY)
    freezer = ProcessFreezer({init_process})
    monkeypatch.setattr(freezer, "_listed_processes", set)  # as if the process did not exist yet
    freezer.freeze()
    monkeypatch.undo()
    while sum(map(cpu_time_s, living_descendants(init_process))) < 0.1:
        time.sleep(0.01)
    assert freezer.wait_all_stopped()
    freezer.account_cpu()
    assert freezer.ran_while_frozen
    assert freezer.wait_stopped()


def _run_for(init_process: int, cpu_s: float = 0.2) -> None:
    """Let the processes run until they have taken so much processor time, on a busy machine too."""
    below = living_descendants(init_process)
    before = sum(map(cpu_time_s, below))
    for pid in below:  # as a timer of the kernel does
        os.kill(pid, signal.SIGCONT)
    until = time.monotonic() + 10
    while sum(map(cpu_time_s, below)) < before + cpu_s:
        assert time.monotonic() < until
        time.sleep(0.005)
    for pid in below:
        os.kill(pid, signal.SIGSTOP)
