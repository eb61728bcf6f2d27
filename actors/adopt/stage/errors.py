"""The error of every stage: one line that says what happened and what to do."""

from __future__ import annotations


class AdoptError(Exception):
    """A stage can't do what was asked for; the text is one line for the user."""


class TimeOverError(AdoptError):
    """The time was over before a stage had its result: the command may be given again."""


def first_line(error: BaseException, length: int = 300) -> str:
    """Return the kind of an exception and the beginning of its text, as one line."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}"[:length].rstrip(": ")
