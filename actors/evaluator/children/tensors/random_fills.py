"""Draws a large module's first values on the card, for a host takes seconds for each gigabyte.

A host draws random numbers one after the other: the weights of a layer of 16384 x 16384 take it
2 s, and a module is constructed in each process that calls it.  The tensors stay where the module
makes them.  Other values than on a host are as good, because a candidate's parameters get other
ones in any case; alike they are in all processes that construct after the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

LARGE_STATE_BYTES = 1 << 28  # of parameters and buffers: 0.5 s of a host
LARGE_FILL = 1 << 22  # elements

IN_PLACE = (torch.ops.aten.uniform_.default, torch.ops.aten.normal_.default)
FACTORIES = (torch.ops.aten.rand.default, torch.ops.aten.randn.default)


def large_fills(*, on_card: bool) -> AbstractContextManager[object]:
    """Return the context in which a module is constructed; `on_card`: it is a large one."""
    return LargeFillsOnCard("cuda") if on_card else nullcontext()


class LargeFillsOnCard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Draws large fills of host tensors with the card's default generator, and copies them back."""

    def __init__(self, drawn_on: str) -> None:
        """`drawn_on`: the device that draws."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._drawn_on = drawn_on

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tell torch not to import its compiler for this: 1.4 s in each process that constructs."""
        return False

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> object:
        """Carry out one operation of torch."""
        named = dict(named or {})
        if function in IN_PLACE and _is_large_on_host(arguments[0]) and not named.get("generator"):
            target = arguments[0]
            drawn = torch.empty(target.shape, dtype=target.dtype, device=self._drawn_on)
            return target.copy_(function(drawn, *arguments[1:]))
        is_on_host = torch.device(named.get("device") or "cpu").type == "cpu"
        if function in FACTORIES and is_on_host and math.prod(arguments[0]) >= LARGE_FILL:
            return function(*arguments, **{**named, "device": self._drawn_on}).cpu()
        return function(*arguments, **named)


def _is_large_on_host(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.numel() >= LARGE_FILL
