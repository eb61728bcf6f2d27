"""Processors of timed sides: both sides begin on one, and no process is bound to it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from actors.evaluator.sandbox import clock_priority


def test_a_side_may_leave_the_processor_that_it_is_woken_on() -> None:
    """Its threads, and those that it starts later, may use all processors as before."""
    allowed = os.sched_getaffinity(0)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as side:
        with clock_priority.woken_on(side.pid, min(allowed)):
            assert os.sched_getaffinity(side.pid) == {min(allowed)}
        assert os.sched_getaffinity(side.pid) == allowed
        with clock_priority.woken_on(side.pid, None):
            assert os.sched_getaffinity(side.pid) == allowed
        side.communicate(b"\n")
    with clock_priority.woken_on(side.pid, min(allowed)):  # a process that is gone is no error
        pass


def test_the_judge_stays_off_that_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock takes no time from the side's processor, and afterwards it may use all again."""
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("there is one processor")
    with clock_priority.staying_off({min(allowed)}):
        assert os.sched_getaffinity(0) == allowed - {min(allowed)}
    assert os.sched_getaffinity(0) == allowed
    monkeypatch.setattr(clock_priority, "MIN_PROCESSORS", 1)
    assert clock_priority.quickest_processor() in allowed
    assert os.sched_getaffinity(0) == allowed
    monkeypatch.setattr(clock_priority, "MIN_PROCESSORS", len(allowed) + 1)
    assert clock_priority.quickest_processor() is None


def test_builds_leave_some_processors_to_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is started beside measurements uses no processor that they launch on."""
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("there is one processor")
    clock_priority.measuring_processors.cache_clear()
    assert len(allowed) >= clock_priority.MIN_SHARED or not clock_priority.measuring_processors()
    monkeypatch.setattr(clock_priority, "MIN_SHARED", 2)
    monkeypatch.setattr(clock_priority, "MIN_PROCESSORS", 1)
    monkeypatch.setattr(clock_priority, "MEASURING_PROCESSORS", 1)
    monkeypatch.setattr(clock_priority, "core_of", lambda processor: {processor})
    clock_priority.measuring_processors.cache_clear()
    try:
        (measuring,) = clock_priority.measuring_processors()
        assert clock_priority.quickest_processor() == measuring
        with (
            clock_priority.staying_off({measuring}),
            subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as build,
        ):
            assert os.sched_getaffinity(build.pid) == allowed - {measuring}
            build.communicate(b"\n")
    finally:
        clock_priority.measuring_processors.cache_clear()
    assert os.sched_getaffinity(0) == allowed
