"""The cost of model calls, from a table of prices (`prices.toml`) that a user can replace.

A run's `stark.toml` holds the prices of its models; the listed ones are the defaults.  Costs are
computed from Anthropic's usage figures, which count each token once: `input_tokens` excludes the
tokens that were read from the cache or written to it.
"""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from typing import Annotated, Any

import msgspec

from protocol.values import Value

MILLION = 1_000_000
# A cache entry for an hour costs twice the input's price, one for five minutes 1.25 times.
HOUR_TO_MINUTES = 1.6
PROMPT_MARGIN_TOKENS = 1_000  # a server adds tokens to our text; no known server adds as many

Usd = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]  # excludes NaN and infinity


class TokenCounts(Value, frozen=True, kw_only=True):
    """The tokens of one call, each counted once."""

    read: int = 0  # not from the cache
    cache_write: int = 0  # written to the cache for five minutes
    cache_write_hour: int = 0
    cache_read: int = 0
    output: int = 0

    @property
    def prompt(self) -> int:
        return self.read + self.cache_written + self.cache_read

    @property
    def cache_written(self) -> int:
        return self.cache_write + self.cache_write_hour


class Price(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars for a million tokens of each kind."""

    input: Usd
    output: Usd
    cache_read: Usd | None = None  # None: as input
    cache_write: Usd | None = None  # None: 1.25 times input
    # With a longer prompt the whole call is charged by `long`.
    long_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    long: Price | None = None

    def cost_usd(self, tokens: TokenCounts) -> float:
        """Return the cost of a call."""
        if self.long is not None and tokens.prompt > (self.long_tokens or 0):
            return self.long.cost_usd(tokens)
        return (
            tokens.read * self.input
            + tokens.cache_write * self._write
            + tokens.cache_write_hour * self._write * HOUR_TO_MINUTES
            + tokens.cache_read * self._read
            + tokens.output * self.output
        ) / MILLION

    def max_cost_usd(self, prompt_bytes: int, max_tokens: int) -> float:
        """Return the most that a call can cost: a token is at least one byte of UTF-8."""
        highest_price = max(self.input, self._write, self._read)
        prompt = prompt_bytes + PROMPT_MARGIN_TOKENS
        usd = (prompt * highest_price + max_tokens * self.output) / MILLION
        if self.long is not None and prompt > (self.long_tokens or 0):
            return max(usd, self.long.max_cost_usd(prompt_bytes, max_tokens))
        return usd

    @property
    def _read(self) -> float:
        return self.input if self.cache_read is None else self.cache_read

    @property
    def _write(self) -> float:
        return self.input * 1.25 if self.cache_write is None else self.cache_write


Prices = dict[str, Price]


def parse(text: str) -> Prices:
    """Return the prices in a TOML text; raise ValueError with one line when it has a mistake."""
    return {name: _price(name, row) for name, row in tomllib.loads(text).items()}


def listed_prices() -> Prices:
    """Return the prices that are installed with this version."""
    return parse((resources.files(__package__) / "prices.toml").read_text(encoding="utf-8"))


def price_of(model: str, prices: Prices) -> Price | None:
    """Return the price of `model`; a dated name has the price of the undated one."""
    return prices.get(model) or prices.get(re.sub(r"-20\d{6}$", "", model))


def _price(name: str, row: Any) -> Price:  # `row` is unchecked user input
    try:
        price = msgspec.convert(row, Price)
    except msgspec.ValidationError as error:
        reason = str(error).replace("Object missing", "it is missing").replace("Object", "it")
        reason = reason.replace(" - at `$.", " - at `")
        raise ValueError(f"[{name}]: {reason}") from error
    if (price.long is None) != (price.long_tokens is None):
        raise ValueError(f"[{name}]: long_tokens and a table [{name}.long] go together")
    return price
