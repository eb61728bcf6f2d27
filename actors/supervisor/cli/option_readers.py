"""Readers of the texts that flags and `STARK_…` variables have; a mistake is one line.

Each returns the value or raises `argparse.ArgumentTypeError`, whose text says what was expected.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import msgspec

from protocol import prices
from protocol.settings import MAX_COUNT
from protocol.user_files import read_text

MAX_SHOWN = 40  # characters of the user's text in a message


def whole_number(least: int, most: int = MAX_COUNT) -> Callable[[str], int]:
    """Return a reader of whole numbers from `least` to `most`."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(
                f"expected a whole number, {least} or more, got {shortened(text)!r}"
            )
        if number > most:
            raise argparse.ArgumentTypeError(f"expected {most} at most, got {shortened(text)!r}")
        return number

    return read


def sandbox_level(text: str) -> int:
    """Read a sandbox level."""
    if text not in ("0", "1", "2", "3"):
        raise argparse.ArgumentTypeError(f"expected a sandbox level, 0 to 3, got {text!r}")
    return int(text)


def positive_number(text: str) -> float:
    """Read a number above zero."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {shortened(text)!r}")
    if number > MAX_COUNT:
        raise argparse.ArgumentTypeError(f"expected {MAX_COUNT} at most, got {shortened(text)!r}")
    return number


def shortened(text: str) -> str:
    """Return the user's text for a message: it may have thousands of digits."""
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a reader of some fixed texts."""

    def read(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"expected {' or '.join(choices)}, got {text!r}")
        return text

    return read


def nonempty_word(text: str) -> str:
    """Read a word that is not empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a name, got nothing")
    return text.strip()


def path_name(text: str) -> Path:
    """Read the path of a file or folder; an empty text would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, got nothing")
    return Path(text)


def price_file(text: str) -> dict[str, object]:
    """Read a file of prices, in the form of `protocol/prices.toml`."""
    path = Path(text)
    try:
        table = prices.parse(read_text(path))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"can't read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise argparse.ArgumentTypeError(f"{path} is not UTF-8 text") from error
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error}") from error
    if not table:
        raise argparse.ArgumentTypeError(f"{path} holds no prices")
    return {model: msgspec.to_builtins(price) for model, price in table.items()}


def launch_file(text: str) -> str:
    """Read KIND:FILE and make the file's path absolute; its content is checked later."""
    kind, colon, file = text.partition(":")
    if not colon or not file:
        raise argparse.ArgumentTypeError(f"expected KIND:FILE, as in slurm:gpus.toml, got {text!r}")
    return f"{kind}:{Path(file).resolve()}"
