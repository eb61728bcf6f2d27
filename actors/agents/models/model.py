"""The interface of a model, and the three ways in which a model can fail to answer.

An unusable answer (a refusal, a cut-off text, nothing) is not such a failure: it is a `Call` with
its stop reason, and the roles judge it.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from actors.agents.requests.request import Request
from protocol.values import Call, Value

STOP_TOO_LONG, STOP_TOO_SLOW = "too_long", "too_slow"  # our own stop reasons, besides the API's


class ReplyBounds(Value, frozen=True, kw_only=True):
    """How much of one reply is read."""

    characters: int = 512 * 1024  # a longer reply does not hold a candidate
    wire_bytes: int = 32 * 1024 * 1024  # the event of one token is about 150 bytes
    seconds: float = 3600.0  # 16,000 tokens at 5 a second


class Model(Protocol):
    """A source of replies: Claude, a script, a stored run or the rule book."""

    name: str
    at_once: int  # how many requests may be asked at the same time

    def reply(self, request: Request) -> Call:
        """Return the answer; may be called from several threads.

        Raises `ModelBusyError`, `ModelDeniedError` or `RequestTooLongError`, each with one line for
        the user.
        """
        ...


@runtime_checkable
class PaidModel(Protocol):
    """A model whose answers may cost money: each call needs a reservation first."""

    name: str

    def max_cost_usd(self, request: Request) -> float | None:
        """Return the most that one call can cost, in US dollars; None where no price is known."""
        ...


class ModelBusyError(Exception):
    """A rate limit, an overloaded or broken server, a lost connection: ask again later."""

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
        self.retry_after_s = retry_after_s  # the wait that the server asks for
        self.tries = tries  # after so many of these in a row the run pauses for the user
        self.may_be_paid = may_be_paid  # the model may have begun to work: the call counts as spent
        self.reply = reply  # the known part of that call; None: it counts at its reserved maximum


class ModelDeniedError(Exception):
    """Calls fail until the user acts: a wrong key, no credit, an unknown model name."""


class RequestTooLongError(Exception):
    """The request is longer than the model can read."""
