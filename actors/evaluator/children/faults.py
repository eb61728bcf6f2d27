"""What a candidate's exception was, said in the candidate's own process, as data.

Used in the children that run candidate code; the judge decides what it means.
"""

from __future__ import annotations

import linecache
import traceback
from pathlib import Path

from actors.evaluator.evidence import with_own_lines
from actors.evaluator.wire.orders import Raised

FRAMES = 8  # of the candidate's own, the innermost ones
CAUSES = 3
WORDS_CHARS = 200_000  # a compiler's log lies in the exception's words
MEMORY_WORDS = (
    "can't allocate memory",
    "Cannot allocate memory",
    "std::bad_alloc",
    "out of memory",
    "not enough memory",
)
BUILD_WORDS = ("Error building extension", "Ninja is required", "error: command")


def raised(error: BaseException) -> Raised:
    """Return what `error` says; asking it must not raise again."""
    words = _words(error)
    chain = [words, *(_words(cause) for cause in _causes(error))]
    built = _built(chain)
    return Raised(
        kind=_sendable(type(error).__name__[:100]),
        words=with_own_lines(words, _own_line) if built else words,
        trace="" if built else _sendable(_trace(error)[-WORDS_CHARS:]),
        compiling=built,
        memory=isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or any(word in text for text in chain for word in MEMORY_WORDS),
    )


def _trace(error: BaseException) -> str:
    """Return where `error` came up, in lines of the candidate's own files, and what it says."""
    causes = [cause for cause in _causes(error) if cause.__traceback__ is not None][:CAUSES]
    parts = []
    for one in (*reversed(causes), error):
        try:
            parts.append("".join(_frames(one) + traceback.format_exception_only(one)))
        except BaseException:  # noqa: BLE001  # a candidate's exception may do anything when asked
            parts.append(f"{type(one).__name__}\n")
    return "\nwhich led to:\n\n".join(parts)


def _frames(error: BaseException) -> list[str]:
    every = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in every if _own(frame.filename)][-FRAMES:]
    if not own:
        return []
    shown = traceback.format_list(own)
    if every[-1] is not own[-1]:
        deepest = every[-1]  # where in torch, in a line; its inside is nobody's to repair
        shown.append(f'  File "{deepest.filename}", line {deepest.lineno}, in {deepest.name}\n')
    return ["Traceback (most recent call last):\n", *shown]


def _own(filename: str) -> bool:
    """Whether a file is the candidate's: it lies in the folder that the child was given."""
    return Path(filename).is_relative_to(Path.cwd())


def _own_line(filename: str, number: int) -> str:
    path = Path.cwd() / filename
    return linecache.getline(str(path), number) if _own(str(path)) else ""


def _built(chain: list[str]) -> bool:
    return any(word in text for text in chain for word in BUILD_WORDS)


def _words(error: BaseException) -> str:
    try:
        return _sendable(str(error)[:WORDS_CHARS])
    except BaseException:  # noqa: BLE001  # a candidate's exception may do anything when asked
        return "an exception that can't be printed"


def _sendable(words: str) -> str:
    """Return `words` without halves of characters, such as names of files may have."""
    return words.encode("utf-8", "replace").decode()


def _causes(error: BaseException) -> list[BaseException]:
    causes: list[BaseException] = []
    seen: BaseException | None = error
    while seen is not None and len(causes) < 5:
        seen = seen.__cause__ or seen.__context__
        if seen is not None:
            causes.append(seen)
    return causes
