"""Work that goes on when the stream of a candidate's calls is done.

A program that calls a module reads its outputs on its own stream, so all of a call's work has to be
done when that stream is.  What is left on other streams would overlap the calls after it.  Each
side waits for the stream of its calls at the end of every block, then for the card, and tells how
long the second took.  Where nothing is left that is 10 to 30 µs, and up to 100 µs after a long wait
for the first: the host has lost that code meanwhile.  A reference that keeps launching never waits
so long, so a suspicion is compared with waits of the reference's process that are as long as the
candidate's blocks.  What a candidate tells is used against it alone.  Pure.
"""

from __future__ import annotations

from collections import deque

from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import SIDES, Side


class LeftWork:
    """What was left at the end of the last blocks of both sides."""

    def __init__(self) -> None:
        self._left_s: dict[Side, deque[float]] = {
            side: deque(maxlen=POLICY.left_blocks) for side in SIDES
        }
        self._waits_s: deque[float] = deque(maxlen=POLICY.left_blocks)

    def add(self, side: Side, left_s: float) -> None:
        """Add a block."""
        self._left_s[side].append(left_s)

    def add_wait(self, left_s: float) -> None:
        """Add what the reference's process told after a long wait, with nothing left."""
        self._waits_s.append(left_s)

    @property
    def is_known(self) -> bool:
        """Whether there are blocks enough of both sides."""
        return all(len(each) == POLICY.left_blocks for each in self._left_s.values())

    @property
    def least_s(self) -> float:
        """What was left of the candidate's work after each of its blocks, at least."""
        return min(self._left_s["candidate"], default=0.0)

    def is_too_much(self, call_s: float) -> bool:
        """Whether that is a part of a call, which takes `call_s`, and is so of no reference's.

        Another program on the card may delay the end of a block, but not of each one.
        """
        beyond_s = self.least_s - max((*self._left_s["reference"], *self._waits_s), default=0.0)
        return self.is_known and beyond_s > max(POLICY.left_share * call_s, POLICY.least_left_s)
