"""Bounds for the facts in a message: facts out of bounds are dropped, for they decide nothing.

An honest evaluator's facts come back unchanged.
"""

from __future__ import annotations

import math
from typing import TypeVar

import msgspec

from protocol.facts import ReferenceFacts, VerdictFacts

MAX_BYTES = 64 * 1024  # of all facts of one message
MAX_FIGURE = 1e30
LINE_CHARS = 500

Facts = TypeVar("Facts", ReferenceFacts, VerdictFacts)


def sanitized_facts(facts: Facts | None) -> Facts | None:
    """Return the facts with printable lines; None where they are too large or a figure is odd."""
    if facts is None or len(msgspec.msgpack.encode(facts)) > MAX_BYTES:
        return None
    plain = msgspec.to_builtins(facts)
    if not _has_possible_figures(plain):
        return None
    return msgspec.convert(_printable(plain), type=type(facts))


def _has_possible_figures(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_has_possible_figures, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_has_possible_figures, value))
    if isinstance(value, int | float):
        return math.isfinite(value) and 0 <= value <= MAX_FIGURE
    return True


def _printable(value: object) -> object:
    if isinstance(value, dict):
        return {_printable(key): _printable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(each) for each in value]
    if isinstance(value, str) and (len(value) > LINE_CHARS or not value.isprintable()):
        return "".join(char if char.isprintable() else " " for char in value[:LINE_CHARS])
    return value
