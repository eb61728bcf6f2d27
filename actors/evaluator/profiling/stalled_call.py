"""Reads where a call was that did not end: the Python stacks that faulthandler writes.  Pure.

The text comes from the candidate's own process, so it is bounded, may be anything, and is shown to
people and models only.
"""

from __future__ import annotations

import re

from actors.evaluator.profiling.fault_report import MAX_CHARS, FaultReport

# What faulthandler writes after its time, and then the stack of each thread, the last one whole.
_TIMEOUT = re.compile(r"^Timeout \((\d{1,3}):(\d\d):(\d\d)[.\d]*\)!$", re.MULTILINE)
_THREAD = re.compile(r"^(?:Current t|T)hread 0x[0-9a-f]+", re.MULTILINE)
_FRAME = re.compile(
    r'^  File "(?P<file>[^"\n]{1,300})", line (?P<line>\d{1,7}) in (?P<function>[^\n]{1,200})$',
    re.MULTILINE,
)
_SERVING = re.compile(r'^  File "[^"\n]{1,300}", line \d{1,7} in serve$', re.MULTILINE)


def is_stack_written(text: str) -> bool:
    """Whether the stack of the thread that serves the judge's orders is in `text`."""
    timeout = _TIMEOUT.search(text[:MAX_CHARS])
    return timeout is not None and _SERVING.search(text, timeout.end(), MAX_CHARS) is not None


def read_stalled_call(text: str, *, on_host: bool) -> FaultReport | None:
    """Return the innermost line of candidate code that a call was at; None without one.

    `on_host`: the call needs no device.  On a device each launch waited for its kernel.
    """
    timeout = _TIMEOUT.search(text[:MAX_CHARS])
    if timeout is None:
        return None
    hours, minutes, seconds = map(int, timeout.groups())
    after_s = hours * 3600 + minutes * 60 + seconds
    for stack in _THREAD.split(text[timeout.end() : MAX_CHARS])[1:]:
        frames = list(_FRAME.finditer(stack))
        own = [at for at, frame in enumerate(frames) if frame["file"].endswith("/candidate.py")]
        if not own or not _SERVING.search(stack):
            continue
        frame = frames[own[0]]
        waits = "" if on_host else ", with launches that wait for their kernels,"
        inner = f", in {frames[0]['function']} called there" if own[0] else ""
        return FaultReport(
            what=f"a call{waits} had not ended after {after_s} s{inner}",
            function=frame["function"],
            file="candidate.py",
            line=int(frame["line"]),
        )
    return None
