"""One processor for both sides' calls on a card, and another core for the thread with the clock.

Calls that are little more than launches take 8 µs on one processor of a machine and 13 µs on the
next, and a process stays where it is for a long time.  So both sides launch from the same one.
Nothing else of theirs is bound.  On a host calls use all processors, and nothing is bound.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from actors import procfs

SIBLINGS_FILE = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
MIN_OTHERS = 3  # processors that are left for the judge and all other programs


@contextmanager
def on_one_processor(pids: Sequence[int]) -> Iterator[int | None]:
    """Bind the main threads of processes to the processor of the first one, and yield its number.

    None where the machine has too few processors for that; then nothing is bound.
    """
    allowed = os.sched_getaffinity(0)
    chosen = procfs.last_processor(pids[0])
    others = allowed - core_of(chosen)
    if chosen not in allowed or len(others) < MIN_OTHERS:
        yield None
        return
    before: dict[int, set[int]] = {}
    try:
        with suppress(OSError):  # a process may be gone
            for pid in pids:
                before[pid] = os.sched_getaffinity(pid)
                os.sched_setaffinity(pid, {chosen})
        os.sched_setaffinity(0, others)
        yield chosen
    finally:
        os.sched_setaffinity(0, allowed)
        for pid, processors in before.items():
            with suppress(OSError):
                os.sched_setaffinity(pid, processors)


def core_of(processor: int) -> set[int]:
    """Return the processors that share a core with this one, as far as the machine tells."""
    try:
        text = Path(SIBLINGS_FILE.format(processor)).read_text(encoding="ascii")
    except OSError:
        return {processor}
    found = {processor}
    for part in text.strip().split(","):
        first, _dash, last = part.partition("-")
        if first.isdigit():
            found |= set(range(int(first), int(last or first) + 1))
    return found
