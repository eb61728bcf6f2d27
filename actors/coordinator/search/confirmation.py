"""Which of the best nodes is judged again, after the last attempt of a task.  Pure.

The best of many noisy measurements is too good: it needs a second, longer measurement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from actors.coordinator.search.leaderboard import Leaderboard
from actors.coordinator.search.tree import ROOT, Tree

CONFIRMED_LEADERS = 3  # the largest number of best nodes that are confirmed


@dataclass(frozen=True)
class BestConfirmed:
    """One of the best nodes was judged again at length; FAILED_SCORE when that found it wrong."""

    number: int
    score: float
    faster: bool  # whether it was confirmed to be faster than the reference


def next_to_confirm(
    tree: Tree, board: Leaderboard, confirmed: Iterable[BestConfirmed], second_looks: int
) -> int | None:
    """Return the best unconfirmed node if it may be the winner; otherwise None.

    It may be while no confirmed score is as good.  It also may be while no confirmed node is faster
    than the reference and its own score is better than the reference's.  A node that a person
    rejected counts as none.  `second_looks`: confirmations since the last attempt ended.
    """
    standing = [one for one in confirmed if not tree[one.number].rejected]
    known = {ROOT, *(one.number for one in standing)}
    unconfirmed = next(((s, number) for s, number in board.ranked() if number not in known), None)
    if unconfirmed is None or second_looks >= CONFIRMED_LEADERS:
        return None
    score, number = unconfirmed
    as_good = [one for one in standing if one.score <= score]
    is_settled = any(one.faster for one in as_good) or score >= tree[ROOT].score
    return None if as_good and is_settled else number
