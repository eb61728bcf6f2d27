"""Each slot's floating values times factors of their own, so that no value is that of another slot.

Slots are mixed of two draws.  A candidate could remember its function of each value of both, where
that is a function of single elements, and answer later calls by looking values up.  Each element
has its own factor: rows of a few elements that only had a common one could be looked up by their
direction.  A factor a little below one leaves zeros, signs and ranges around zero as they are, and
values that are all away from zero come nearer to the middle of their range.
"""

from __future__ import annotations

import math
import random

import torch

from actors.evaluator.ipc.layout_checks import Leaf

DTYPES = {"float16", "bfloat16", "float32", "float64"}
LEAST, MOST = 2**-7, 2**-5  # below one
MAX_INSPECTED = 1 << 24
MAX_STATE_BYTES = 1 << 26  # of a tensor of state: it is written anew before each block
WHOLE_SHARE = 0.5  # with more whole numbers than that besides zeros they are masks or counts
AWAY_FROM_ZERO = 0.05  # of the largest value: the smallest may be a bound


def centre_of(leaf: Leaf, draws: tuple[torch.Tensor, torch.Tensor]) -> float | None:
    """Return the value to which values of this kind may come a little nearer; None: no value.

    It is zero, or the middle of values that are all away from it: the smallest may be a bound.
    """
    if leaf.dtype not in DTYPES:
        return None
    values = [as_values(leaf, raw)[:MAX_INSPECTED].float() for raw in draws]
    both = torch.cat(values)
    # The bits of a NaN may be others after each multiplication.
    if any(map(_is_whole, values)) or bool(both.isnan().any()):
        return None
    least, most = float(both.min()), float(both.max())
    if float(both.abs().min()) <= AWAY_FROM_ZERO * max(abs(least), abs(most)):
        return 0.0
    is_on_one_side = least * most > 0 and math.isfinite(least) and math.isfinite(most)
    return (least + most) / 2 if is_on_one_side else None


def can_scale_state(value: torch.Tensor) -> bool:
    """Whether a tensor of a module's state is no count, and small enough to be copied each time."""
    is_small = 0 < value.nbytes <= MAX_STATE_BYTES
    return is_small and value.is_floating_point() and not _is_whole(value.flatten().float())


def _is_whole(values: torch.Tensor) -> bool:
    others = values[values != 0]
    return not len(others) or float((others == others.round()).float().mean()) > WHOLE_SHARE


def factor(rng: random.Random) -> float:
    """Return a factor for all values of a tensor."""
    return 1 - LEAST - (MOST - LEAST) * rng.random()


def factors(leaf: Leaf, count: int, device: torch.device) -> torch.Tensor:
    """Return a factor for each of `count` elements, in the type of the values."""
    dtype = getattr(torch, leaf.dtype)
    drawn = torch.rand(count, device=device, dtype=torch.promote_types(dtype, torch.float32))
    return drawn.mul_(LEAST - MOST).add_(1 - LEAST).to(dtype)


def as_values(leaf: Leaf, raw: torch.Tensor) -> torch.Tensor:
    """Return words or bytes of a tensor as its values, in the same memory."""
    return raw.view(getattr(torch, leaf.dtype))
