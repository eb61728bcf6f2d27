"""What a model is to an agent, and the three ways in which one can fail to answer.

An answer that is no use (a refusal, a cut-off text, nothing) is no failure: it is a `Call` with
its stop reason, and the roles judge it.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from actors.agents.requests.request import Request
from protocol.values import Call, Value

STOP_TOO_LONG, STOP_TOO_SLOW = "too_long", "too_slow"  # our own stop reasons, beside the API's


class ReplyBounds(Value, frozen=True, kw_only=True):
    """How much of one reply is read."""

    characters: int = 512 * 1024  # what is longer holds no candidate, and nobody wants to read it
    wire_bytes: int = 32 * 1024 * 1024  # a token's event is some 150 bytes
    seconds: float = 3600.0  # 16,000 tokens at 5 a second


class Model(Protocol):
    """Whoever answers requests."""

    name: str
    at_once: int  # how many requests it is good to ask at the same time

    def reply(self, request: Request) -> Call:
        """Return the answer; may be called from several threads.

        Raises `ModelBusyError`, `ModelDeniedError` or `RequestTooLongError`, each with one line for
        people.
        """
        ...


@runtime_checkable
class PaidModel(Protocol):
    """A model whose answers cost money, or may: each call has to be allowed first."""

    name: str

    def max_cost_usd(self, request: Request) -> float | None:
        """Return what one call can cost at most, in US dollars; None where no price is known."""
        ...


class ModelBusyError(Exception):
    """Not now: a rate limit, an overloaded or broken server, a lost connection.  Ask again."""

    def __init__(
        self,
        reason: str,
        *,
        retry_after_s: float = 0.0,
        tries: int | None = None,
        may_be_paid: bool = False,
        reply: Call | None = None,
    ) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s  # the server's own wish
        self.tries = tries  # so many failures in a row mean that a person must look
        self.may_be_paid = may_be_paid  # a model had begun to work, or may have: it counts as spent
        self.reply = reply  # what is known of that call; None: nothing, it may have cost its most


class ModelDeniedError(Exception):
    """Never, until a person acts: a wrong key, no credit, a name that the server doesn't know."""


class RequestTooLongError(Exception):
    """The request is longer than the model can read."""
