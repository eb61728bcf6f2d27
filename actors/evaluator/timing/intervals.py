"""Intervals of what repeated measurements are spread around.  Pure.

That of one verdict has 99 %: it is looked at several times while groups are timed, and hundreds of
verdicts have to hold.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import mean, stdev

# Two-sided points of the normal distribution, and of Student's t by the number of values, for fewer
# values than ranks can use.
NORMAL_99 = 2.576
STUDENT_T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
STUDENT_T_99 = {2: 63.657, 3: 9.925, 4: 5.841, 5: 4.604, 6: 4.032, 7: 3.707}


def symmetric_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return a 99 % interval of what the values (two at least) are as often above as below.

    They are so by as much to either side, and from eight values on nothing else is assumed: the
    ends are means of two values, by Wilcoxon's signed ranks.  Fewer values are taken to be normal.
    """
    if len(values) in STUDENT_T_99:
        return _student_interval(values, STUDENT_T_99)
    pairs = itertools.combinations_with_replacement(values, 2)
    middles = sorted((one + other) / 2 for one, other in pairs)
    rank = _signed_rank(len(values))
    return middles[rank - 1], middles[-rank]


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return a 95 % interval of the median of what `values` are drawn from.

    From six values on it is the sign interval: order statistics, for any distribution.  Fewer
    values are taken to be normal.  One value has no interval.
    """
    count = len(values)
    if count < 2:
        return None
    if count in STUDENT_T_95:
        return _student_interval(values, STUDENT_T_95)
    rank = _sign_rank(count)
    ranked = sorted(values)
    return ranked[rank - 1], ranked[count - rank]


def _student_interval(values: Sequence[float], points: Mapping[int, float]) -> tuple[float, float]:
    reach = points[len(values)] * stdev(values) / math.sqrt(len(values))
    return mean(values) - reach, mean(values) + reach


def _signed_rank(count: int) -> int:
    """Return the rank of an interval's ends among the means of any two of so many values.

    The normal distribution gives one that is too low by one or two, and the interval is wider.
    """
    deviation = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    return max(1, math.floor(count * (count + 1) / 4 - NORMAL_99 * deviation) + 1)


def _sign_rank(count: int) -> int:
    """Return the largest k such that the k-th smallest and k-th largest value hold 95 %."""
    tail, rank = 0.0, 0
    while True:
        tail += math.exp(
            math.lgamma(count + 1)
            - math.lgamma(rank + 1)
            - math.lgamma(count - rank + 1)
            - count * math.log(2)
        )
        if tail > 0.025:
            return max(rank, 1)
        rank += 1
