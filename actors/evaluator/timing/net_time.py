"""What the calls of a block took: the whole block less what an empty one takes.

An empty block is one of the trusted reference runner: the same orders and as many outputs handed
over, without a call.  What the first call of a block takes longer than the calls behind it (cold
caches, a card that has to begin) is no part of a call, either; the reference shows it.  Between its
answer and the end of the hand-over a side has nothing to compute.  What its hand-over takes beyond
the slowest of the last empty blocks counts as calls.  Pure.
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

    @property
    def block_s(self) -> float:
        """What an empty block takes until it is answered."""
        return median(each.block_s for each in self._windows)

    def net_us(self, window: TimedWindow, calls: int, first_call_s: float = 0.0) -> float:
        """Return the microseconds of each of the calls in a window.

        `first_call_s`: what the first of them takes longer than the others.
        """
        allowed_s = max(each.hand_over_s for each in self._windows)
        late_s = max(0.0, window.hand_over_s - allowed_s)
        net_s = window.block_s - self.block_s - first_call_s + late_s
        return max(LEAST_US, net_s * 1e6 / calls)


def first_call_s(
    singles: Sequence[TimedWindow], blocks: Sequence[TimedWindow], calls: int, empty_s: float
) -> float:
    """Return what the first call of the reference's blocks takes longer than those behind it.

    `singles`: blocks of one call, `blocks`: of `calls` calls; `empty_s`: what an empty one takes.
    """
    single_s = median(each.block_s for each in singles)
    block_s = median(each.block_s for each in blocks)
    call_s = (block_s - single_s) / (calls - 1)
    return min(max(0.0, single_s - call_s - empty_s), POLICY.max_first_call_s)
