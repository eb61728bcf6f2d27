"""What a candidate's exception was, said in the candidate's own process, as data.

Used in the children that run candidate code; the judge decides what it means.
"""

from __future__ import annotations

import traceback

from actors.evaluator.orders import Raised

TRACE_LINES = 40
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
    lines = traceback.format_exception(error, limit=-12)
    chain = [words, *(_words(cause) for cause in _causes(error))]
    return Raised(
        kind=type(error).__name__[:100],
        words=words,
        trace="".join(lines)[-WORDS_CHARS:] if not _built(chain) else "",
        compiling=_built(chain),
        memory=isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or any(word in text for text in chain for word in MEMORY_WORDS),
    )


def _built(chain: list[str]) -> bool:
    return any(word in text for text in chain for word in BUILD_WORDS)


def _words(error: BaseException) -> str:
    try:
        return str(error)[:WORDS_CHARS]
    except BaseException:  # noqa: BLE001  # a candidate's exception may do anything when asked
        return "an exception that can't be printed"


def _causes(error: BaseException) -> list[BaseException]:
    causes: list[BaseException] = []
    seen: BaseException | None = error
    while seen is not None and len(causes) < 5:
        seen = seen.__cause__ or seen.__context__
        if seen is not None:
            causes.append(seen)
    return causes
