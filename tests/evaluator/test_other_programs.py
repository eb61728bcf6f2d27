"""Laws of CPU conditions: only other programs make a machine busy, and woken threads are spread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors import procfs
from actors.evaluator import verdict_annotations
from actors.evaluator.sandbox import clock_priority
from actors.evaluator.timing import other_programs, timing_statistics
from actors.evaluator.timing.other_programs import OtherPrograms
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import TimedGroup

STAT = """cpu  1 1 1 1 1 1 1 1 0 0
cpu0 100 10 20 7000 900 3 2 5 40 0
cpu1 200 0 0 8000 0 0 0 0 0 0
cpu2 999 0 0 0 0 0 0 0 0 0
intr 1 2 3
"""


def test_a_processor_is_busy_with_programs_the_kernel_and_other_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither idle time nor waits for a disk count, nor the processors of others."""
    (tmp_path / "stat").write_text(STAT)
    monkeypatch.setattr(procfs, "PROC", tmp_path)
    assert procfs.busy_s({0}) == pytest.approx(140 / procfs.TICKS_PER_S)
    assert procfs.busy_s({0, 1}) == pytest.approx(340 / procfs.TICKS_PER_S)
    (tmp_path / "stat").unlink()
    assert procfs.busy_s({0}) is None
    assert OtherPrograms().share() is None
    assert not other_programs.is_quiet(None)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_the_judges_own_processes_are_no_other_programs(own: float, others: float) -> None:
    """A side that uses every processor leaves the machine quiet; a compiler elsewhere does not."""
    with pytest.MonkeyPatch.context() as patch:
        clock = {"now": 100.0}
        processors = len(os.sched_getaffinity(0))
        full_s = 5.0 * processors
        patch.setattr(
            procfs, "busy_s", lambda _all: 7.0 + (clock["now"] > 100) * full_s * (own + others)
        )
        patch.setattr(other_programs, "own_s", lambda: 3.0 + (clock["now"] > 100) * full_s * own)
        started = OtherPrograms(lambda: clock["now"])
        clock["now"] += 5.0
        share = started.share()
    assert share == pytest.approx(others, abs=1e-6)
    assert other_programs.is_quiet(0.0)
    assert not other_programs.is_quiet(2 * POLICY.quiet_share)


@pytest.mark.parametrize("is_candidate", [True, False])
def test_load_that_stops_with_the_candidate_is_no_other_program(is_candidate: bool) -> None:
    """Its processes may end without being counted; then nothing is excused by what they use."""
    clock = {"now": 100.0, "busy": 0.0}

    def sleep(seconds: float) -> None:
        clock["now"] += seconds
        clock["busy"] += 0.0 if is_candidate else seconds

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(procfs, "busy_s", lambda _all: clock["busy"])
        patch.setattr(other_programs, "own_s", lambda: 0.0)
        others = OtherPrograms(lambda: clock["now"], sleep)
        for _block in range(10):  # children that a parent has never waited for
            clock["now"] += 0.02
            clock["busy"] += 0.02
        assert not other_programs.is_quiet(others.share())
        assert is_candidate is not others.are_busy_now()
        seen = clock["now"]
        others.are_busy_now()
        assert seen == clock["now"]  # what was just seen


def test_children_that_are_not_waited_for_are_not_counted() -> None:
    """The kernel forgets their time: so the look while a candidate is frozen is needed."""
    code = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _child in range(5):
    if not os.fork():
        while time.process_time() < 0.05:
            pass
        os._exit(0)
print(flush=True)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
try:
    os.wait()
except ChildProcessError:
    pass
print(flush=True)
input()
"""
    before = other_programs.own_s()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        for _line in range(2):
            parent.stdout.readline()
        counted = other_programs.own_s() - before
        parent.communicate(b"\n")
    assert counted < 0.15  # of 0.25, and the interpreter's own


@given(st.floats(0.0, 0.99), st.floats(0.1, 10.0), st.integers(3, 40))
def test_waits_for_their_own_threads_disturb_nothing(share: float, ratio: float, n: int) -> None:
    """On a quiet machine no group is left out, no interval widened and no note made."""
    group = TimedGroup(
        reference=(100.0 * ratio, 101.0 * ratio),
        candidate=(100.0, 101.0),
        reference_wait_share=share,
        candidate_wait_share=share,
    )
    timed = timing_statistics.timing_of([group] * n, is_quiet=True)
    found = timing_statistics.under_contention(timed, 100.0 * ratio)
    assert found == timed
    assert (found.groups, found.disturbed_groups, found.busy_groups) == (n, 0, 0)
    told = verdict_annotations.verdict_figures(found, None, None, ())["timing"]
    assert told == f"{n} groups A B B A"


def test_a_candidate_that_slows_the_reference_down_is_seen_on_a_quiet_machine() -> None:
    """The reference's best time bounds the interval, and no other program is blamed."""
    timed = timing_statistics.timing_of(
        [TimedGroup(reference=(200.0, 200.0), candidate=(100.0, 100.0))] * 12, is_quiet=True
    )
    found = timing_statistics.under_contention(timed, 100.0)
    assert found.ci95 is not None
    assert found.ci95[0] == pytest.approx(1.0)
    told = verdict_annotations.verdict_figures(found, None, None, ())["timing"]
    assert "the reference took 2 times its best time" in told
    assert "programs" not in told


def test_threads_that_wake_have_a_processor_each_and_get_all_of_them_back() -> None:
    """Two threads of one computation do not wake on one processor while another one is idle."""
    allowed = os.sched_getaffinity(0)
    ended, known = threading.Event(), list[int]()
    started = threading.Event()

    def wait() -> None:
        known.append(threading.get_native_id())
        started.set()
        ended.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    started.wait()
    threads = [threading.get_native_id(), *known, 2**22]  # the last one is gone
    try:
        with clock_priority.spread_at_wake(threads):
            masks = [os.sched_getaffinity(each) for each in threads[:2]]
        after = [os.sched_getaffinity(each) for each in threads[:2]]
    finally:
        ended.set()
        thread.join()
    assert after == [allowed, allowed]
    if len(allowed) > 1:
        assert [len(mask) for mask in masks] == [1, 1]
        assert masks[0] != masks[1]
