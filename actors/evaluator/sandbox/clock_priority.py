"""On which processor a side's calls are launched, and how the judge's clock never waits for one.

Builds beside measurements leave two cores to them.  With builds on all cores of a host of 16, the
groups of a kernel of 450 microseconds on a card were up to 40 % apart.
"""

from __future__ import annotations

import functools
import os
import random
import time
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path

from actors import procfs

CPU_FOLDER = Path("/sys/devices/system/cpu")
MIN_PROCESSORS = 4  # with fewer a side and the judge would be in each other's way
MEASURING_PROCESSORS, MIN_SHARED = 4, 12  # set apart on a host with at least so many
MAX_TRIED = 16
TRIED_LOOPS, TRIES = 2000, 3
ALIKE = 1.03  # times the best: processors that are as quick


@contextmanager
def realtime_priority() -> Iterator[None]:
    """Let this thread run at once when an answer comes, where the machine permits it.

    The thread that waits and reads the clock has the priority, not the runner that works.  On a
    busy machine the thread would otherwise wait for a processor for longer than many a block takes,
    and that would count as the block's time.
    """
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def quickest_processor() -> int | None:
    """Return a processor that other machines or programs use little; None where there are few.

    Virtual processors share cores: on one host of 16, a call that is little more than a launch took
    9 to 14 microseconds, by the processor.  Two evaluators should not find the same one.
    """
    allowed = os.sched_getaffinity(0)
    if len(allowed) < MIN_PROCESSORS:
        return None
    taken_s = _loop_times(measuring_processors() & allowed or allowed)
    if not taken_s:
        return None
    best_s = min(taken_s.values())
    quick = [each for each, seconds in taken_s.items() if seconds <= ALIKE * best_s]
    return random.choice(quick)  # noqa: S311


@functools.cache
def measuring_processors() -> frozenset[int]:
    """Return the processors that this process sets apart for measurements; none where few are."""
    allowed = os.sched_getaffinity(0)
    if len(allowed) < MIN_SHARED:
        return frozenset()
    taken_s = _loop_times(allowed)
    chosen: set[int] = set()
    for processor in sorted(taken_s, key=taken_s.__getitem__):
        if len(chosen) < MEASURING_PROCESSORS:
            chosen |= core_of(processor) & allowed
    return frozenset(chosen)


def _loop_times(processors: Set[int]) -> dict[int, float]:
    """Return the seconds that a loop takes on some of the processors; none if that is forbidden."""
    allowed = os.sched_getaffinity(0)
    taken_s: dict[int, float] = {}
    try:
        for processor in random.sample(sorted(processors), min(MAX_TRIED, len(processors))):
            os.sched_setaffinity(0, {processor})
            taken_s[processor] = min(_loop_s() for _try in range(TRIES))
    except OSError:
        return {}
    finally:
        os.sched_setaffinity(0, allowed)
    return taken_s


def _loop_s() -> float:
    began = time.perf_counter()
    for _turn in range(TRIED_LOOPS):
        pass
    return time.perf_counter() - began


def core_of(processor: int) -> set[int]:
    """Return the processors that share a core with this one, as the kernel says, and itself."""
    try:
        listed = (CPU_FOLDER / f"cpu{processor}/topology/thread_siblings_list").read_text("ascii")
        pairs = [part.split("-") for part in listed.strip().split(",")]
        found = {each for pair in pairs for each in range(int(pair[0]), int(pair[-1]) + 1)}
    except (OSError, ValueError):
        return {processor}
    return found | {processor}


@contextmanager
def staying_off(processors: Set[int | None]) -> Iterator[None]:
    """Keep this thread, and processes that it starts meanwhile, off the processors' cores."""
    allowed = os.sched_getaffinity(0)
    cores = {
        each for processor in processors if processor is not None for each in core_of(processor)
    }
    for left in (allowed - cores, allowed - processors):
        if left:
            os.sched_setaffinity(0, left)
            break
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def woken_on(pid: int, processor: int | None) -> Iterator[None]:
    """Have the main thread of a stopped process go on on a processor, which it may leave later.

    Its threads may use all processors, and so may those that it starts.
    """
    allowed: set[int] = set()
    if processor is not None:
        with suppress(OSError):
            allowed = os.sched_getaffinity(pid)
            os.sched_setaffinity(pid, {processor} & allowed or allowed)
    try:
        yield
    finally:
        if allowed:
            with suppress(OSError):
                os.sched_setaffinity(pid, allowed)


@contextmanager
def spread_at_wake(threads: Sequence[int]) -> Iterator[None]:
    """Have stopped threads go on on a processor each, which they may leave later.

    Two threads of one computation that wake on the same processor wait for each other until the
    kernel moves one of them, which took 4 to 5 ms of a block of 8, with the other processor idle.
    This thread's processor, which is busy with waking them, comes last.  There is one for each of
    the first threads only; the others go on where the kernel has them.
    """
    here = procfs.this_processor()
    placed: list[tuple[int, set[int]]] = []
    taken: set[int] = set()
    for thread in threads[: len(os.sched_getaffinity(0))]:
        with suppress(OSError):
            allowed = os.sched_getaffinity(thread)
            free = sorted(allowed - taken, key=lambda each: (each == here, each))
            if len(allowed) > 1 and free:
                os.sched_setaffinity(thread, free[:1])
                taken.add(free[0])
                placed.append((thread, allowed))
    try:
        yield
    finally:
        for thread, allowed in placed:
            with suppress(OSError):
                os.sched_setaffinity(thread, allowed)
