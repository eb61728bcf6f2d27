"""How far apart judgments of a module against itself are, and what their intervals say.  Pure.

The truth is known: 1.  So the spread of the speed-ups over fresh processes is the whole error of a
verdict, and the share of intervals that exclude 1 is what they leave out of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from protocol.values import Value

EXCLUDED_BY = 0.03


class JudgedModule(Value, frozen=True, kw_only=True):
    """One judgment of a module against itself."""

    name: str
    is_beside: bool  # another program
    speedup: float
    low: float  # of its interval
    high: float

    @property
    def width(self) -> float:
        """Half of the interval, as a share."""
        return (self.high - self.low) / 2

    def excludes(self, share: float = 0.0) -> bool:
        """Whether the interval excludes 1 by more than that."""
        return self.low > 1 + share or self.high < 1 - share


def spread_lines(judged: Sequence[JudgedModule]) -> list[str]:
    """Return a line for the judgments beside another program, and one for the others."""
    lines = []
    for is_beside, where in ((False, "alone"), (True, "beside another program")):
        of_kind = [each for each in judged if each.is_beside == is_beside]
        if of_kind:
            lines.append(f"modules against themselves, {where}: {spread_of(of_kind)}")
    return lines


def spread_of(judged: Sequence[JudgedModule]) -> str:
    """Return how far the speed-ups are from 1, and how many intervals exclude it."""
    off = sorted(abs(math.log(each.speedup)) for each in judged if each.speedup)
    nine_tenths = off[math.ceil(0.9 * len(off)) - 1] if off else 0.0
    width = median(each.width for each in judged)
    return (
        f"{len(judged)}, off by {median(off or [0.0]):.2%} (median), {nine_tenths:.2%} (nine of "
        f"ten), {max(off, default=0.0):.2%} (most); intervals ±{width:.1%}"
        f" (median), {sum(each.excludes() for each in judged)} exclude 1, "
        f"{sum(each.excludes(0.01) for each in judged)} by more than 1 %, "
        f"{sum(each.excludes(EXCLUDED_BY) for each in judged)} by more than 3 %"
    )
