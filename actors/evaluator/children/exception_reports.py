"""Describes a candidate's exception as data, in the candidate's own process.

Used in the children that run candidate code; the judge decides what the exception means.
"""

from __future__ import annotations

import linecache
import traceback
from pathlib import Path

from actors.evaluator.ipc.logs import with_own_lines
from actors.evaluator.ipc.orders import CandidateRaised

MAX_FRAMES = 8  # the innermost frames of the candidate's own files
MAX_CAUSES = 3
MAX_TEXT_CHARS = 200_000  # an exception's message may contain a compiler's log
OUT_OF_MEMORY_PHRASES = (
    "can't allocate memory",
    "Cannot allocate memory",
    "std::bad_alloc",
    "out of memory",
    "not enough memory",
)
BUILD_FAILURE_PHRASES = ("Error building extension", "Ninja is required", "error: command")


def describe_exception(error: BaseException) -> CandidateRaised:
    """Return the type, the message and the trace of `error`; its own code must not raise here."""
    message = _message_of(error)
    chain = [message, *(_message_of(cause) for cause in _causes(error))]
    built = _is_build_failure(chain)
    return CandidateRaised(
        kind=_encodable(type(error).__name__[:100]),
        words=with_own_lines(message, _source_line) if built else message,
        trace="" if built else _encodable(_trace(error)[-MAX_TEXT_CHARS:]),
        compiling=built,
        memory=isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or any(phrase in text for text in chain for phrase in OUT_OF_MEMORY_PHRASES),
    )


def _trace(error: BaseException) -> str:
    """Return the lines of the candidate's own files that raised `error`, and its message."""
    causes = [cause for cause in _causes(error) if cause.__traceback__ is not None][:MAX_CAUSES]
    parts = []
    for one in (*reversed(causes), error):
        try:
            parts.append("".join(_frames(one) + traceback.format_exception_only(one)))
        except BaseException:  # noqa: BLE001  # the exception's own code may raise anything
            parts.append(f"{type(one).__name__}\n")
    return "\nwhich led to:\n\n".join(parts)


def _frames(error: BaseException) -> list[str]:
    every = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in every if _is_own_file(frame.filename)][-MAX_FRAMES:]
    if not own:
        return []
    shown = traceback.format_list(own)
    if every[-1] is not own[-1]:
        deepest = every[-1]  # one line for the place in torch, which an agent can't repair
        shown.append(f'  File "{deepest.filename}", line {deepest.lineno}, in {deepest.name}\n')
    return ["Traceback (most recent call last):\n", *shown]


def _is_own_file(filename: str) -> bool:
    """Whether a file is the candidate's: it is in the child's scratch folder."""
    return Path(filename).is_relative_to(Path.cwd())


def _source_line(filename: str, number: int) -> str:
    path = Path.cwd() / filename
    return linecache.getline(str(path), number) if _is_own_file(str(path)) else ""


def _is_build_failure(chain: list[str]) -> bool:
    return any(phrase in text for text in chain for phrase in BUILD_FAILURE_PHRASES)


def _message_of(error: BaseException) -> str:
    try:
        return _encodable(str(error)[:MAX_TEXT_CHARS])
    except BaseException:  # noqa: BLE001  # the exception's own code may raise anything
        return "an exception that can't be printed"


def _encodable(text: str) -> str:
    """Return `text` without lone surrogates, which a file name may contain."""
    return text.encode("utf-8", "replace").decode()


def _causes(error: BaseException) -> list[BaseException]:
    causes: list[BaseException] = []
    seen: BaseException | None = error
    while seen is not None and len(causes) < 5:
        seen = seen.__cause__ or seen.__context__
        if seen is not None:
            causes.append(seen)
    return causes
