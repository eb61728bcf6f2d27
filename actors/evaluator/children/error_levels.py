"""How many elements may be off by how much: one bad element excuses no others.

Where a few elements are ill-conditioned (a row that is nearly constant, a quotient near zero, a
step of a quantisation), eager's largest error is theirs.  As the tolerance of all elements it let
bfloat16 pass for float32 in all other rows.  Pure functions on tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch

LEVELS = 128  # float32 ends at 2^128, and so do errors of it


def crowded_level(
    errors: Iterable[torch.Tensor],
    samples: Sequence[Iterable[torch.Tensor]],
    count: int,
    times: float,
) -> int | None:
    """Return the first k of which more than may be of `count` errors are beyond 2^k, or None.

    At each level those may be that `times` errors like eager's lose together: `samples` are eager's
    errors, as many times as large.  All are in units of the tolerance.
    """
    most = map(max, zip(*map(_beyond, samples), strict=True))
    for level, (here, lost) in enumerate(zip(_beyond(errors), most, strict=True)):
        if here > times_as_many(lost / count, count, times):
            return level
    return None


def times_as_many(share: float, count: int, times: float) -> int:
    """Return how many of `count` elements `times` independent errors lose where one loses `share`.

    That is as many times those while they are few, and never all before one loses all.
    """
    lost: int = math.ceil(count * (1.0 - (1.0 - share) ** times))
    return lost if share >= 1.0 else min(lost, count - 1)


def _beyond(errors: Iterable[torch.Tensor]) -> list[int]:
    """Return how many errors are beyond 1, 2, 4, and so on; all are at least 0, or infinite."""
    counts = torch.zeros(LEVELS + 1, dtype=torch.int64)
    for each in errors:
        octaves = each.reshape(-1).log2().ceil_().clamp_(0, LEVELS)  # 0: not beyond 1
        counts += torch.bincount(octaves.long(), minlength=LEVELS + 1).cpu()
    beyond: list[int] = counts[1:].flip(0).cumsum(0).flip(0).tolist()
    return beyond
