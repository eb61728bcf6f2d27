"""A scripted model: answers from a file of JSON lines (README.md has the format).

For tests, and to try a run without a language model.  The answer is a pure function of role, task
and attempt, so that a disturbed run and an undisturbed one get the same replies.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Literal

import msgspec

from actors.agents.models.model import ModelBusyError, ModelDeniedError
from actors.agents.replies import anchors, python_source
from actors.agents.replies.replies import fenced
from actors.agents.requests.request import Request, shown_source
from protocol.values import Call, Role, Value

ScriptedFailure = Literal[429, 500, 529, "timeout", "wrong_key"]


class ScriptLine(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a script."""

    role: Literal["planner", "coder", "debugger"]
    task: str = ""  # "" answers for every task
    attempt: int | None = None  # None: lines are used in turn, by the attempt's number
    reply: str | None = None  # the whole reply, as a model would write it
    code: str | None = None  # short for a coder's or debugger's reply
    advice: str | None = None  # short for a planner's reply; with a coder's code: its advice
    anchor: str | None = None  # planner: anchors go around the first line with this text
    again: str | None = None  # the reply when the first could not be used
    stop: str = "end_turn"
    delay_s: float = 0.0
    error: ScriptedFailure | None = None  # before the reply, once a process; wrong_key: always


class ScriptModel:
    """Answers from the lines of one script."""

    at_once = 1

    def __init__(self, name: str, lines: tuple[ScriptLine, ...]) -> None:
        self.name = name
        self._lines = lines
        self._failed: set[str] = set()
        self._lock = threading.Lock()

    def reply(self, request: Request) -> Call:
        """Return the scripted answer, or the scripted failure."""
        started = time.monotonic()
        line = self.line_for(request.role, request.task, request.attempt)
        if line is not None:
            time.sleep(line.delay_s)
            self._fail(line, request.work.lease.work)
        return Call(
            model=self.name,
            request=request.render(),
            reply=_text(line, request),
            stop="end_turn" if line is None else line.stop,
            usd=0.0,
            seconds=time.monotonic() - started,
        )

    def line_for(self, role: Role, task: str, attempt: int) -> ScriptLine | None:
        """Return the line that answers: one that names the attempt, else the next in turn.

        Lines that name the task come before those that name none.
        """
        matching = [line for line in self._lines if line.role == role and line.task in ("", task)]
        named = [line for line in matching if line.attempt == attempt]
        in_turn = [line for line in matching if line.attempt is None]
        for lines, pick in ((named, 0), (in_turn, attempt - 1)):
            chosen = [line for line in lines if line.task] or lines
            if chosen:
                return chosen[pick % len(chosen)]
        return None

    def _fail(self, line: ScriptLine, work: str) -> None:
        if line.error == "wrong_key":
            raise ModelDeniedError(
                "the script says that the key is wrong: take the line's error away"
            )
        with self._lock:
            first = work not in self._failed
            self._failed.add(work)
        if line.error is not None and first:
            raise ModelBusyError(f"{line.error}, says the script")


def read_script(path: Path) -> tuple[ScriptLine, ...]:
    """Return the lines of a script; raise ValueError with one line that names the problem."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"can't read the script {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text") from error
    lines = []
    for number, row in enumerate(text.split("\n"), start=1):
        if not row.strip() or row.lstrip().startswith("//"):
            continue
        try:
            line = msgspec.json.decode(row, type=ScriptLine)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        problem = _problem(line)
        if problem:
            raise ValueError(f"{path}, line {number}: {problem}")
        lines.append(line)
    if not lines:
        raise ValueError(f"the script {path} has no lines")
    return tuple(lines)


def _problem(line: ScriptLine) -> str:
    forms = [name for name in ("reply", "code", "advice") if getattr(line, name) is not None]
    if line.role == "coder" and forms == ["code", "advice"]:
        forms.remove("advice")  # the advice of a solo agent
    if len(forms) != 1 and line.error != "wrong_key":
        return "give exactly one of reply, code and advice"
    if line.code is not None and line.role == "planner":
        return "a planner gives advice, not code"
    if line.role == "coder" and line.advice is not None and line.code is None:
        return "a coder gives code, not advice alone"
    if line.advice is not None and line.role == "debugger":
        return "a debugger gives code, not advice"
    if line.anchor is not None and (line.advice is None or line.role != "planner"):
        return "anchor goes with advice"
    return ""


def _text(line: ScriptLine | None, request: Request) -> str:
    if line is None:
        return f"## Cannot\n\nThe script has no line for the {request.role}.\n"
    if request.turns and line.again is not None:
        return line.again
    if line.reply is not None:
        return line.reply
    if line.code is not None:
        head = "## Diagnosis\n\nAs scripted.\n\n" if request.role is Role.DEBUGGER else ""
        if line.advice is not None:
            head = f"## Advice\n\n{line.advice}\n\n"
        return f"{head}## Candidate\n\n{fenced(line.code)}\n"
    return _plan(line.advice or "", line.anchor, request)


def _plan(advice: str, anchor: str | None, request: Request) -> str:
    source = shown_source(request.work)
    first, last = python_source.forward_span(source)
    if anchor is not None:
        lines = anchors.lines_of(source)
        first = next((n for n, text in enumerate(lines, start=1) if anchor in text), first)
        last = first if anchor in lines[first - 1] else last
    scaffold = anchors.insert_anchors(source, first, last, advice)
    return f"## Advice\n\n{advice}\n\n## Source\n\n{fenced(scaffold)}\n"
