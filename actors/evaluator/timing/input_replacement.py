"""Which inputs of a block are replaced while the block goes on, and when.

The output of a call that comes later has to be that of the new inputs, and the output of a call
that was over has to be that of the old ones.  No clock outside of a side tells at which moment a
call begins or ends, so shares of the block's time are left in between.  Pure.
"""

from __future__ import annotations

import math
import random

from actors.evaluator.sandbox.child_failures import Accusation
from actors.evaluator.timing.timing_policy import POLICY
from protocol.values import Value

READ_AT_ANOTHER_TIME = {
    Accusation.INPUTS_READ_AHEAD: "the output of a call of a block is not that of its inputs, "
    "which were replaced before its turn: it reads the inputs of calls that are still to come",
    Accusation.INPUTS_READ_LATE: "the output of a call of a block is not that of its inputs, "
    "which were replaced long after its turn: it computes calls of a block together",
}


class InputReplacement(Value, frozen=True, kw_only=True):
    """Two calls of a block, and the share of its time after which their inputs are replaced."""

    calls: int
    coming: int  # call whose turn is later
    over: int | None  # call whose turn was before; None: the block has too few calls
    after: float

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots whose contents are replaced."""
        return (self.coming,) if self.over is None else (self.coming, self.over)

    def was_before_its_turn(self, written_s: float, usual_s: float, block_s: float) -> bool:
        """Whether the new inputs were there before the later call's turn.

        `written_s`: when they were; `usual_s`: what the calls of a block take; `block_s`: what
        this block took.
        Calls begin no earlier than at the even pace of the fastest block, since the first ones are
        the slow ones.
        """
        latest = self.coming / self.calls - POLICY.replaced_ahead_share
        return written_s <= latest * min(usual_s, block_s)

    def was_after_its_turn(self, begun_s: float, usual_s: float, block_s: float) -> bool:
        """Whether the earlier call was over when the new inputs began to be written.

        `usual_s`, `block_s`: what such a block takes, and this one took.
        Nothing is known of a block that took longer than usual: it may have stood still before
        that call.
        """
        if self.over is None or block_s > usual_s * (1 + POLICY.replaced_longer_share):
            return False
        earliest = (self.over + 1) / self.calls + POLICY.replaced_behind_share
        return begun_s >= earliest * block_s


def by_lot(calls: int, rng: random.Random) -> InputReplacement:
    """Draw the calls and the moment."""
    first, last = POLICY.replaced_shares
    after = first + (last - first) * rng.random()
    least = math.ceil((after + POLICY.replacing_share + POLICY.replaced_ahead_share) * calls)
    # The last call is surely in time, and the first that may be finds those that read a little
    # ahead.
    coming = rng.randrange(least, calls) if rng.random() < 0.5 else least
    ended = math.floor((after - POLICY.replaced_behind_share) * calls)
    over = rng.randrange(ended) if ended > 0 else None
    return InputReplacement(calls=calls, coming=coming, over=over, after=after)
