"""What is random in the timing of blocks: their order in a group, and when each begins.

A program that comes and goes at the pace of the groups, or that takes turns with the judge on a
card, delays blocks by when they begin.  Where nothing of that is left to chance, it delays one side
more than the other in all groups, and no number of groups shows it.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection

from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import SIDES, Side

RANDOM = secrets.SystemRandom()


def group_order(long: Collection[Side] = ()) -> tuple[tuple[Side, ...], tuple[Side, ...]]:
    """Return the order of a group, A A B B A: blocks that do not count, and A B B A.

    So each side has one block that follows its own, and one that follows the other side's.  What
    is done after a block differs: outputs are compared after the candidate's alone.
    `long`: the sides with calls so long that it makes no difference to them.
    """
    a, b = RANDOM.choice((SIDES, SIDES[::-1]))
    return () if a in long else (a,), (a, b, b, a)


def pause_s(*, on_host: bool) -> float:
    """Return the seconds before a block.

    On a card what comes before a block ends when the card is idle: when another program's turn is
    over.  So all blocks would begin at the same moment of its turns.
    """
    return POLICY.settle_s if on_host else RANDOM.uniform(0.0, POLICY.most_pause_s)
