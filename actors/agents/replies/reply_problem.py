"""What is wrong with a model's reply: a value, told to the model once and then to the tree."""

from __future__ import annotations

from protocol.values import GiveUpScope, Value


class ReplyProblem(Value, frozen=True, kw_only=True):
    """Why a reply can't be used."""

    reason: str
    is_final: bool = False  # asking again would not help: it refused, or said that it can't
    gives_up_on: GiveUpScope = "attempt"  # what it said that it never can
