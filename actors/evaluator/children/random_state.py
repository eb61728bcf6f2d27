"""The state of a process's random generators, to begin calls from."""

from __future__ import annotations

import random
from typing import TypeAlias

import torch

from actors.evaluator.children.source_import import seed_all
from protocol.values import DeviceKind


class RandomState:
    """The state of the generators of torch and Python at one moment."""

    def __init__(self, device: DeviceKind) -> None:
        self._on_card = device == "cuda"
        self._host = torch.get_rng_state()
        self._card = torch.cuda.get_rng_state() if self._on_card else self._host
        self._python = random.getstate()

    def restore(self) -> None:
        """Have the generators go on from here."""
        torch.set_rng_state(self._host)
        if self._on_card:
            torch.cuda.set_rng_state(self._card)
        random.setstate(self._python)

    def is_equal(self, other: RandomState) -> bool:
        """Whether the same numbers follow."""
        return (
            torch.equal(self._host, other._host)
            and torch.equal(self._card, other._card)
            and self._python == other._python
        )


RandomStart: TypeAlias = int | RandomState  # a seed, or the state after other calls


def start_from(start: RandomStart) -> None:
    """Set the generators of torch and Python."""
    if isinstance(start, RandomState):
        start.restore()
    else:
        seed_all(start)
