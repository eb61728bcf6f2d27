"""How many calls make a block: few enough for the time limit, enough for the clock."""

from __future__ import annotations

from actors.evaluator.timing import timing_statistics
from actors.evaluator.timing.audit import GroupClaim
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import Side


class BlockSize:
    """The lengths of blocks, planned anew after each group of the warm-up."""

    def __init__(
        self, *, bytes_per_call: int, batch_bytes: int, block_s: float, time_s: float
    ) -> None:
        """`bytes_per_call`: what one call reads and writes; `batch_bytes`: for all fresh calls."""
        self._bytes_per_call = bytes_per_call
        self._batch_bytes = batch_bytes
        self._block_s = block_s
        self._time_s = time_s
        self.is_large = bytes_per_call >= POLICY.large_call_bytes
        self._fewest = 1 if self.is_large else POLICY.min_fresh_calls
        self.calls = self._fewest  # on fresh inputs, the same number for both sides
        # Of a long block, by side: the claim of one side must not decide how long the other works.
        self._repeated_calls: dict[Side, int] = {"reference": self.calls, "candidate": self.calls}

    @property
    def needs_repeated_inputs(self) -> bool:
        """Whether fresh inputs are too few for a long block, so that more calls repeat them.

        If one side needs it, both sides do it: the difference shows what a cold start costs.
        """
        return max(self._repeated_calls.values()) >= POLICY.max_stretch * self.calls

    def repeated_calls(self, side: Side) -> int:
        """Return the calls of a side's long block, on inputs that it has had before."""
        return max(self._repeated_calls[side], self.calls)

    def plan(self, claim: GroupClaim, draw_s: float = 0.0) -> None:
        """Choose how many calls make a block; both sides get the same number of fresh ones.

        `draw_s`: the seconds that drawing one call's inputs takes.
        """
        call_s: dict[Side, float] = {
            "reference": min(block.us for block in claim.reference) / 1e6,
            "candidate": min(block.us for block in claim.candidate) / 1e6,
        }
        for side, seconds in call_s.items():
            # With a short time limit, blocks are short: the planned number of them has to fit.
            most = int(self._time_s / POLICY.planned_blocks / seconds) + 1
            self._repeated_calls[side] = min(
                timing_statistics.calls_a_block(seconds, self._block_s), most
            )
        affordable = self._batch_bytes // self._bytes_per_call
        most_fresh = max(self._fewest, min(POLICY.max_fresh_calls, affordable))
        if draw_s * most_fresh > POLICY.max_draw_s:
            most_fresh = max(self._fewest, int(POLICY.max_draw_s / draw_s))
        # The faster side wants more calls, but the reference's own time limits their number.
        reference_limit = int(POLICY.max_reference_block_s / call_s["reference"])
        most_of_reference = max(self._fewest, reference_limit)
        wanted = max(self._repeated_calls.values())
        growth_limit = self.calls * POLICY.max_growth
        self.calls = max(self._fewest, min(wanted, most_fresh, most_of_reference, growth_limit))
