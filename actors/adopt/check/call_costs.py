"""What a call costs the host and what it costs the card, of a module with and without its kernel.

A run judges kernels by their time on the card.  A step of many small operations waits for the host,
which launches them: there a kernel gains only what it saves the host.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from actors.adopt.check.fitted_states import DroppedError
from actors.adopt.look.look import Look
from actors.adopt.model.call_layouts import CallKind, call_kind
from actors.adopt.model.device_time import kernels_us

SERIES, CALLS = 10, 20  # so few calls at once that the card's queue has room for their launches
BUSY = 0.9  # a card that works less of a step waits for the host


class CallCost(msgspec.Struct, frozen=True):
    """The time of a call in µs."""

    host_us: float  # until it returns, while the card has not caught up
    card_us: float  # of its kernels

    def describe(self) -> str:
        """Return "95 µs of the host and 263 µs of the card"."""
        return f"{self.host_us:.0f} µs of the host and {self.card_us:.0f} µs of the card"


def recorded_call(
    model: torch.nn.Module, site: str, kind: CallKind, run: Callable[[], object]
) -> Callable[[], object]:
    """Return the first call of this kind that `run` makes of a module, to be made again."""
    found: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def note(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not found and call_kind(module, args, kwargs) == kind:
            found.append((args, kwargs))

    module = model.get_submodule(site)
    handle = module.register_forward_pre_hook(note, with_kwargs=True)
    try:
        run()
    finally:
        handle.remove()
    if not found:
        raise DroppedError(f"{site} was not called as when it was taken")
    args, kwargs = found[0]

    def call() -> object:
        with torch.set_grad_enabled(kind.gradients):
            return module(*args, **kwargs)

    return call


def call_cost(call: Callable[[], object]) -> CallCost:
    """Measure a call on a card; the least of some series, for others only add time."""
    least = float("inf")
    for _ in range(SERIES):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(CALLS):
            call()
        least = min(least, time.perf_counter() - begun)
    return CallCost(least / CALLS * 1e6, kernels_us(call))


def cost_words(before: CallCost, after: CallCost, look: Look) -> str:
    """Return why a kernel brings the step nothing, as a clause."""
    words = f"a call takes {before.describe()}, with the kernel {after.describe()}"
    if look.busy >= BUSY:
        return words
    words += f"; the step waits for the host, the card works {look.busy:.0%} of it"
    if any(regime.name == "cudagraph" for regime in look.regimes):
        return words
    return f"{words} (--regime cudagraph tries it without the host)"
