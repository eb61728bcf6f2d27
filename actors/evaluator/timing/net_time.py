"""What the calls of a block took: the whole block less what it takes besides its calls.

That is measured on the trusted reference runner: by empty blocks, which have the same orders and as
many outputs to hand over, and on a card by short ones, because the first call of a block takes
longer after a pause.  Between its answer and the end of the hand-over a side has nothing to
compute.  What its hand-over takes beyond those of empty blocks and of the reference's own counts
as calls.  Pure.
"""

from __future__ import annotations

from collections import deque
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
        """What a block takes without calls."""
        return median(each.block_s for each in self._windows)

    @property
    def hand_over_s(self) -> float:
        """What its hand-over takes."""
        return median(each.hand_over_s for each in self._windows)

    def net_us(self, window: TimedWindow, calls: int, besides: ReferenceBlocks) -> float:
        """Return the microseconds of each of the calls in a window.

        `besides`: what blocks of the reference take besides their calls, beyond empty ones.
        """
        longest_s = max(each.hand_over_s for each in self._windows)
        allowed_s = besides.allowed_s(self.hand_over_s, longest_s, calls)
        late_s = max(0.0, window.hand_over_s - allowed_s)
        calls_s = window.block_s - self.block_s - besides.first_call_s
        return max(LEAST_US, (calls_s + late_s) * 1e6 / calls)


class ReferenceBlocks:
    """What the reference's last blocks took besides their calls, beyond empty blocks.

    Both sides may take as much.  The reference is trusted, and the limits of the policy hold where
    a candidate's leftover work has delayed it.
    """

    def __init__(self) -> None:
        self._long: deque[TimedWindow] = deque(maxlen=POLICY.reference_blocks)
        self._short: deque[TimedWindow] = deque(maxlen=POLICY.reference_blocks)
        self._beyond_s: deque[float] = deque(maxlen=POLICY.reference_blocks)  # of hand-overs
        self._calls, self._short_calls = 1, 0  # of each long and each short block
        self.first_call_s = 0.0  # by which the first call of a block takes longer than others

    def add(self, window: TimedWindow, calls: int, empty: EmptyBlocks) -> None:
        """Add a block of the usual number of calls."""
        if calls != self._calls:
            self._long.clear()
            self._beyond_s.clear()
            self._calls = calls
        self._long.append(window)
        self._beyond_s.append(max(0.0, window.hand_over_s - empty.hand_over_s))
        self._find_first_call(empty)

    def add_short(self, window: TimedWindow, calls: int, empty: EmptyBlocks) -> None:
        """Add a block of few calls: it shows what a block's first call takes besides."""
        if calls != self._short_calls:
            self._short.clear()
            self._short_calls = calls
        self._short.append(window)
        self._find_first_call(empty)

    def _find_first_call(self, empty: EmptyBlocks) -> None:
        more = self._calls - self._short_calls
        if not self._long or not self._short or more <= 0:
            self.first_call_s = 0.0
            return
        short_s = median(each.block_s for each in self._short)
        call_s = (median(each.block_s for each in self._long) - short_s) / more
        found_s = short_s - self._short_calls * call_s - empty.block_s
        self.first_call_s = min(max(0.0, found_s), POLICY.max_first_call_s)

    def allowed_s(self, empty_s: float, longest_s: float, calls: int) -> float:
        """Return how long a hand-over may take before it counts as calls.

        `empty_s`, `longest_s`: what those of empty blocks take, and the longest of them.
        """
        ranked = sorted(self._beyond_s)
        beyond_s = ranked[-2] if len(ranked) > 1 else 0.0  # the longest one may be an accident
        an_output_s = min(median(ranked or [0.0]) / self._calls, POLICY.max_output_s)
        more_s = max(0, calls - self._calls) * an_output_s
        beyond_s = min(beyond_s, POLICY.max_hand_over_s + min(calls, self._calls) * an_output_s)
        return max(longest_s, empty_s + beyond_s) + more_s
