"""What a call costs, by a table of prices that anyone can read and replace (`prices.toml`)."""

from __future__ import annotations

import re
from importlib import resources

import msgspec

from protocol.values import Value

MILLION = 1_000_000


class Tokens(Value, frozen=True, kw_only=True):
    """The tokens of one call, each counted once."""

    read: int = 0  # read anew
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0

    @property
    def prompt(self) -> int:
        return self.read + self.cache_write + self.cache_read


class Price(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars for a million tokens of each kind."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    long_tokens: int | None = None  # a longer prompt is charged by `long`, all of the call
    long: Price | None = None

    def usd(self, tokens: Tokens) -> float:
        """Return what the call costs."""
        if self.long is not None and tokens.prompt > (self.long_tokens or 0):
            return self.long.usd(tokens)
        return (
            tokens.read * self.input
            + tokens.cache_write * self.cache_write
            + tokens.cache_read * self.cache_read
            + tokens.output * self.output
        ) / MILLION


Prices = dict[str, Price]


def parse(text: str) -> Prices:
    """Return the prices in a TOML text; raise ValueError with one line when it has a mistake."""
    return msgspec.toml.decode(text, type=Prices)


def listed() -> Prices:
    """Return the prices that came with this version."""
    return parse((resources.files(__package__) / "prices.toml").read_text(encoding="utf-8"))


def price_of(model: str, prices: Prices) -> Price | None:
    """Return the price of `model`; a dated name has the price of the undated one."""
    return prices.get(model) or prices.get(re.sub(r"-20\d{6}$", "", model))
