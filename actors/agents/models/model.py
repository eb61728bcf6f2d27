"""What a model is to an agent, and the three ways in which one can fail to answer.

An answer that is no use (a refusal, a cut-off text, nothing) is no failure: it is a `Call` with
its stop reason, and the roles judge it.
"""

from __future__ import annotations

from typing import Protocol

from actors.agents.request import Request
from protocol.values import Call


class Model(Protocol):
    """Whoever answers requests."""

    name: str
    at_once: int  # how many requests it is good to ask at the same time

    def reply(self, request: Request) -> Call:
        """Return the answer; may be called from several threads.

        Raises `Busy`, `Denied` or `TooLong`, each with one line for people.
        """
        ...


class Busy(Exception):
    """Not now: a rate limit, an overloaded or broken server, a lost connection.  Ask again."""

    def __init__(self, reason: str, *, after_s: float = 0.0, tries: int | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s  # the server's own wish
        self.tries = tries  # so many failures in a row mean that a person must look


class Denied(Exception):
    """Never, until a person acts: a wrong key, no credit, a name that the server doesn't know."""


class TooLong(Exception):
    """The request is longer than the model can read."""
