"""How many calls make a block of a race: few enough for the time, enough for the clock."""

from __future__ import annotations

from actors.evaluator.timing import timing_statistics
from actors.evaluator.timing.audit import GroupClaim
from actors.evaluator.timing.timing_statistics import Side

MAX_FRESH = 512  # calls of a block
MIN_FRESH = 2
LARGE_BYTES = 1 << 30  # a call that moves more has blocks of its own
REFERENCE_S = 0.25  # the longest block of the reference, where calls are shorter than that
PLANNED_BLOCKS = 40  # that the time must be enough for
MAX_STRETCH = 1.5  # blocks that want this many times more calls than fresh inputs go round again
MAX_GROWTH = 16  # at most, from one plan to the next
DRAW_S = 2.0  # for the inputs of a block, drawn by a task that may be slow at it


class BlockSize:
    """The lengths of blocks, planned anew after each group while both sides get warm."""

    def __init__(self, *, each_bytes: int, hand_bytes: int, block_s: float, time_s: float) -> None:
        """`each_bytes`: what one call reads and writes; `hand_bytes`: room for fresh calls'."""
        self._each = each_bytes
        self._room = hand_bytes
        self._block_s = block_s
        self._time_s = time_s
        self.is_large = each_bytes >= LARGE_BYTES
        self._fewest = 1 if self.is_large else MIN_FRESH
        self.calls = self._fewest  # on fresh inputs, the same number for both sides
        # Of a long block, by side: what one side claims must not decide how long the other works.
        self._repeated_calls: dict[Side, int] = {"reference": self.calls, "candidate": self.calls}

    @property
    def needs_repeated_inputs(self) -> bool:
        """Whether fresh inputs are too few for a long block: more calls are timed on the same.

        If one side needs it, both do: what a beginning costs shows in the difference.
        """
        return max(self._repeated_calls.values()) >= MAX_STRETCH * self.calls

    def repeated_calls(self, side: Side) -> int:
        """Return the calls of a side's long block, on inputs that were there before."""
        return max(self._repeated_calls[side], self.calls)

    def plan(self, claim: GroupClaim, draw_s: float = 0.0) -> None:
        """Choose how many calls make a block; both sides get the same number of fresh ones.

        `draw_s`: what drawing one call's inputs takes.
        """
        each_s: dict[Side, float] = {
            "reference": min(block.us for block in claim.reference) / 1e6,
            "candidate": min(block.us for block in claim.candidate) / 1e6,
        }
        for side, seconds in each_s.items():
            # Where there is little time, blocks are short: a few of them have to fit.
            most = int(self._time_s / PLANNED_BLOCKS / seconds) + 1
            self._repeated_calls[side] = min(
                timing_statistics.calls_a_block(seconds, self._block_s), most
            )
        room = max(self._fewest, min(MAX_FRESH, self._room // self._each))
        if draw_s * room > DRAW_S:
            room = max(self._fewest, int(DRAW_S / draw_s))
        # The faster side wants more; but the reference's own time bounds what it is asked for.
        bearable = max(self._fewest, int(REFERENCE_S / each_s["reference"]))
        wanted = max(self._repeated_calls.values())
        self.calls = max(self._fewest, min(wanted, room, bearable, self.calls * MAX_GROWTH))
