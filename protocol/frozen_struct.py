"""The base of every value and message."""

from __future__ import annotations

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The frozen struct that every value and every message derives from.

    Each subclass repeats `frozen=True, kw_only=True`: msgspec does not inherit `kw_only`, and type
    checkers do not see that it inherits `frozen`.
    """
