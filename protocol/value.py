"""The base of every value and message."""

from __future__ import annotations

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A frozen struct: what every value and every message is.

    (Each subclass says `frozen=True, kw_only=True` again: msgspec does not inherit `kw_only`,
    and type checkers do not see that it inherits `frozen`.)
    """
