"""What is wrong with a model's reply: a value, told to the model once and then to the tree."""

from __future__ import annotations

from protocol.values import Scope, Value


class Problem(Value, frozen=True, kw_only=True):
    """Why a reply can't be used."""

    reason: str
    final: bool = False  # asking again would not help: it refused, or said that it can't
    gives_up_on: Scope = "attempt"  # what it said that it never can
