"""Large modules of the release checks get their first values from the card.

A check constructs its modules anew, and the winner's guard constructs two more: some ninety for a
winner.  A host takes seconds for each gigabyte of random numbers.  The tensors stay where a module
makes them, as where the judge constructs a candidate (`tensors/random_fills.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType

from actors.evaluator.children.tensors.random_fills import large_fills


@functools.cache
def prepare_guard(module: ModuleType) -> None:
    """Have the guard of a drop-in file construct its two modules in this way, too."""
    module._Guard.construct = with_large_fills(module._Guard.construct)


def with_large_fills(construct: Callable[..., None]) -> Callable[..., None]:
    """Return `construct`, which draws large fills on the card."""

    @functools.wraps(construct)
    def construct_quickly(*arguments: object) -> None:
        with large_fills(on_card=True):
            construct(*arguments)

    return construct_quickly
