"""What the calls of a block took: the whole block less what an empty one takes.

An empty block is one of the trusted reference runner: the same orders and as many outputs handed
over, without a call.  Between its answer and the end of the hand-over a side has nothing to
compute.  What its hand-over takes beyond the slowest of the last empty blocks counts as calls.
Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

from actors.evaluator.timing.timing_policy import POLICY
from protocol.values import Value

LEAST_US = 1e-3  # what a block less an empty one never goes below


class TimedWindow(Value, frozen=True, kw_only=True):
    """Seconds of one timed window."""

    block_s: float  # from the thaw to the answer that the calls are done
    hand_over_s: float  # until the outputs are known, the side is frozen and the card is idle
    waited_s: float = 0.0  # of its threads, for a processor

    @property
    def whole_s(self) -> float:
        """All of it."""
        return self.block_s + self.hand_over_s


class EmptyBlocks:
    """The last empty blocks with as many outputs as a side's blocks have."""

    def __init__(self) -> None:
        self._windows: deque[TimedWindow] = deque(maxlen=POLICY.empty_blocks)

    def add(self, window: TimedWindow) -> None:
        """Add a new one; the oldest goes."""
        self._windows.append(window)

    def __len__(self) -> int:
        return len(self._windows)

    def net_us(self, window: TimedWindow, calls: int, output_s: float = 0.0) -> float:
        """Return the microseconds of each of the calls in a window.

        `output_s`: by which the hand-over of an output of a call takes longer than in empty blocks.
        """
        empty_s = median(each.block_s for each in self._windows)
        allowed_s = max(each.hand_over_s for each in self._windows) + calls * output_s
        late_s = max(0.0, window.hand_over_s - allowed_s)
        return max(LEAST_US, (window.block_s - empty_s + late_s) * 1e6 / calls)

    def output_s(self, blocks: Sequence[TimedWindow], calls: int) -> float:
        """Return by how much the hand-over of an output takes longer in the reference's blocks.

        Empty blocks hand over the same outputs again, which caches still hold.
        """
        empty_s = median(each.hand_over_s for each in self._windows)
        block_s = median(each.hand_over_s for each in blocks)
        return min(max(0.0, block_s - empty_s) / calls, POLICY.max_output_s)
