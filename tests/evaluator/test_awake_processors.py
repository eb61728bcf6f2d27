"""Laws of awake processors: loops fill pauses only, end with the judge, and take no one's share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from actors import procfs
from actors.evaluator.sandbox import cgroup
from actors.evaluator.timing import awake_processors
from actors.evaluator.timing.awake_processors import kept_awake


def becomes(is_so: Callable[[], bool]) -> bool:
    until = time.monotonic() + 5.0
    while not is_so() and time.monotonic() < until:
        time.sleep(0.01)
    return is_so()


def test_a_loop_keeps_each_processor_awake_and_rests_in_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loops have the lowest priority, are the judge's own, stop while calls are timed, and end."""
    monkeypatch.setattr(cgroup, "has_processor_limit", lambda: False)
    monkeypatch.setattr(awake_processors, "may_loop_in_blocks", lambda: False)
    before = set(procfs.living_descendants(os.getpid()))

    def loops() -> list[int]:
        return [each for each in procfs.living_descendants(os.getpid()) if each not in before]

    def are_idle() -> bool:
        processors = {frozenset(os.sched_getaffinity(each)) for each in loops()}
        policies = {os.sched_getscheduler(each) for each in loops()}
        return len(processors) == len(os.sched_getaffinity(0)) and policies == {os.SCHED_IDLE}

    with kept_awake() as awake:
        assert becomes(are_idle)
        awake.rest()
        assert becomes(lambda: all(map(procfs.is_stopped, loops())))
        awake.go_on()
        assert becomes(lambda: not any(map(procfs.is_stopped, loops())))
        awake.rest()  # a stopped loop ends as well
    assert becomes(lambda: not loops())


@pytest.mark.parametrize(
    ("limits", "is_limited"),
    [
        ({}, False),
        ({"cpu.max": "max 100000"}, False),
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000"}, True),
        ({"a/b/cpu.max": "100000 100000"}, True),
    ],
)
def test_where_a_group_limits_processor_time_no_loop_uses_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, str], is_limited: bool
) -> None:
    """A container with two of 64 processors would be throttled by loops in the timed calls."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name, text in limits.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(cgroup, "_mounts", lambda: {"": tmp_path})
    monkeypatch.setattr(cgroup, "_memberships", lambda: {"": "/a/b"})
    assert cgroup.has_processor_limit() is is_limited
    if is_limited:
        with kept_awake() as awake:
            assert awake.process is None
    else:
        assert awake_processors.LOOP.exists()


@pytest.mark.parametrize(
    ("flags", "controllers", "may_loop"),
    [
        ("fpu hypervisor", "", True),
        ("fpu hypervisor", "memory pids", True),
        ("fpu hypervisor", "cpuset cpu memory", False),
        ("fpu", "", False),
    ],
)
def test_loops_go_on_in_blocks_only_where_they_take_no_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, controllers: str, may_loop: bool
) -> None:
    """On hardware of its own a loop slows the other thread of its core; a group has its share."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "cgroup.subtree_control").write_text(controllers)
    monkeypatch.setattr(cgroup, "_mounts", lambda: {"": tmp_path})
    monkeypatch.setattr(cgroup, "_memberships", lambda: {"": "/a/b"})
    processor = tmp_path / "cpuinfo"
    processor.write_text(f"processor : 0\nflags : {flags}\n")
    monkeypatch.setattr(awake_processors, "PROCESSORS", processor)
    assert may_loop is awake_processors.may_loop_in_blocks()


def test_loops_that_go_on_in_blocks_are_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rest is none for them, and they end with the benchmark all the same."""
    monkeypatch.setattr(cgroup, "has_processor_limit", lambda: False)
    monkeypatch.setattr(awake_processors, "may_loop_in_blocks", lambda: True)
    before = set(procfs.living_descendants(os.getpid()))

    def loops() -> list[int]:
        return [each for each in procfs.living_descendants(os.getpid()) if each not in before]

    with kept_awake() as awake:
        assert becomes(lambda: len(loops()) == len(os.sched_getaffinity(0)))
        awake.rest()
        assert not any(map(procfs.is_stopped, loops()))
    assert becomes(lambda: not loops())
