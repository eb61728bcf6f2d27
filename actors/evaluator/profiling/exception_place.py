"""Reads where a candidate raised an exception or was killed, off the log in its verdict.  Pure.

The text comes from the candidate's own process, so it is bounded, may be anything, and is shown to
people and models only.
"""

from __future__ import annotations

import re

from msgspec import structs

from actors.evaluator.profiling.fault_report import MAX_CHARS, FaultReport, fault_location
from protocol.facts import VerdictFacts
from protocol.values import Outcome, Verdict

RAISED = (Outcome.CRASHED, Outcome.OUT_OF_MEMORY, Outcome.COMPILE_FAILED)
_TRACEBACK = "Traceback (most recent call last):\n"
_FRAME = re.compile(
    r'^  File "(?P<file>[^"\n]{1,300})", line (?P<line>\d{1,7})'
    r"(?:, in (?P<function>[^\n]{1,200}))?$",
    re.MULTILINE,
)
_SIGNAL = re.compile(r"killed by (SIG[A-Z]{2,6})\b")
_DUMP = re.compile(r"^Current thread [^\n]*\(most recent call first\):\n", re.MULTILINE)
_DUMP_FRAME = re.compile(
    r'  File "(?P<file>[^"\n]{1,300})", line (?P<line>\d{1,7}) in (?P<function>[^\n]{1,200})\n?'
)
_KIND = re.compile(r"\w{1,100}(?=:|$)")


def with_exception_place(verdict: Verdict, source: str) -> Verdict:
    """Return the verdict with the line of `source` that raised; as it was where none is known.

    A place that a tool has found stays: it is nearer to the cause.
    """
    facts = verdict.facts or VerdictFacts()
    if verdict.verdict not in RAISED or verdict.stage == "build" or facts.fault_location:
        return verdict
    report = read_signal(verdict.log, verdict.reason) or read_exception(verdict.log, verdict.reason)
    if report is None:
        return verdict
    lines = source.splitlines()
    line = lines[report.line - 1] if 0 < report.line <= len(lines) else ""
    located = structs.replace(facts, fault_location=fault_location(report, source, line))
    return structs.replace(verdict, facts=located)


def read_signal(log: str, reason: str) -> FaultReport | None:
    """Return the line of the candidate's own file that ran when a signal killed its process.

    Python's fault handler writes the frames of the thread, the innermost one first.
    """
    signal, dump = _SIGNAL.match(reason), _DUMP.search(log[:MAX_CHARS])
    if signal is None or dump is None:
        return None
    at, inner = dump.end(), ""
    while frame := _DUMP_FRAME.match(log, at):
        if frame["file"] == "candidate.py":
            return FaultReport(
                what=f"{signal[1]}{f' in {inner}, called' if inner else ''}",
                function=frame["function"],
                file="candidate.py",
                line=int(frame["line"]),
            )
        at, inner = frame.end(), inner or frame["function"]
    return None


def read_exception(log: str, reason: str) -> FaultReport | None:
    """Return the innermost line of the candidate's own file in the traceback of its exception.

    `reason` starts with the exception's kind: other tracebacks in the log are of other exceptions.
    """
    kind = _KIND.match(reason)
    if kind is None:
        return None
    ending = re.compile(rf"^(?:\w+\.)*{kind[0]}(?::|$)", re.MULTILINE)
    for part in log[:MAX_CHARS].split(_TRACEBACK)[1:]:
        end = ending.search(part)
        frames = list(_FRAME.finditer(part, 0, end.start())) if end else []
        own = [at for at, frame in enumerate(frames) if frame["file"] == "candidate.py"]
        if not own:
            continue
        frame, last = frames[own[-1]], frames[-1]
        inner = f" in {last['function']}, called" if last is not frame else ""
        return FaultReport(
            what=f"{kind[0]}{inner}",
            function=frame["function"] or "",
            file="candidate.py",
            line=int(frame["line"]),
        )
    return None
