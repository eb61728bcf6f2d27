"""A module's own casts to lower precision, undone while its outputs are computed in float64.

A module that calls `x.bfloat16()` itself returns bfloat16 for float64 inputs as well, rounded as
eager's: a candidate that computes in float32 was wrong by what eager loses.  Casts to eight bits
and to integers stay: those are quantisations.  Trusted code only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from actors.evaluator.children import correctness

CASTS = (torch.float16, torch.bfloat16, torch.float32)
# Of the tolerance: what casts lose is all of eager's error, and twice it is right.  Eight times it
# would be a quarter where steps are repeated, and three of five of them were right.
LEEWAY = 0.25


class WideCasts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Casts to a floating type of 16 or 32 bits give float64."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call an operation of torch."""
        given = dict(kwargs or {})
        if func is torch.ops.aten._to_copy.default and given.get("dtype") in CASTS:
            given["dtype"] = torch.float64
        return func(*args, **given)


def casts_only_round(eager: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> bool:
    """Whether outputs without the module's casts are its own (`eager`) but for rounding.

    What a cast leaves of a value, and integers that it decides, are others.
    """
    return all(
        wide.dtype == torch.float64
        and correctness.relative_loss(own, wide) <= correctness.MOST_ALLOWED
        for own, wide in zip(eager, exact, strict=True)
    )
