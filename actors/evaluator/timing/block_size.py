"""How many calls make a block: enough for the clock, few enough for memory and the time limit."""

from __future__ import annotations

import math

from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import SIDES, Side


class BlockSize:
    """The calls of both sides' blocks.

    Sides whose calls take about as long have the same number: then whatever blocks take besides
    their calls is the same share of both.  Else each has a number of its own: otherwise a candidate
    that is a hundred times as fast would have the reference work for a hundred blocks.
    """

    def __init__(
        self, *, most: int, block_s: float, time_s: float, is_repeated: bool = False
    ) -> None:
        """`most`: what memory allows; `block_s`: what a block is to last at least.

        `is_repeated`: the referee repeats blocks with the task's own module.
        """
        self._is_repeated = is_repeated
        self._most_repeated = POLICY.max_block_calls
        self.most = max(1, min(most, POLICY.max_block_calls))
        # With a short time limit blocks are short: the planned number of them has to fit.
        self.block_s = min(block_s, time_s / POLICY.planned_blocks)
        self._calls: dict[Side, int] = {"reference": 1, "candidate": 1}

    def calls(self, side: Side) -> int:
        """Return the calls of a side's next block."""
        return self._calls[side]

    @property
    def largest(self) -> int:
        """The calls of the longer of both blocks."""
        return max(self._calls.values())

    def limit(self, most: int) -> None:
        """Allow no more calls than this."""
        self.most = max(1, min(self.most, most))
        self._calls = {side: min(calls, self.most) for side, calls in self._calls.items()}

    def plan(self, side: Side, call_us: float) -> bool:
        """Choose a side's calls by what one took; return whether its last block was too short.

        A side that was slow until now and gets fast has blocks that say nothing, so they do not
        count, and the next one has more calls.
        """
        call_s = max(call_us / 1e6, 1e-9)
        if side == "reference" and self._is_repeated:  # anew each time: one block may be held up
            self._most_repeated = max(1, int(POLICY.max_repeated_s / call_s))
        calls = self._calls[side]
        wanted = math.ceil(self.block_s / call_s)
        planned = max(1, min(wanted, self.most, self._most_repeated))
        is_too_short = planned > POLICY.max_stretch * calls
        if is_too_short or POLICY.max_stretch * planned < calls:
            self._calls[side] = planned
            if self.largest <= POLICY.max_stretch * min(self._calls.values()):
                self._calls = dict.fromkeys(SIDES, self.largest)
        return is_too_short
