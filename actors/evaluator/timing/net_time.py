"""What the calls of a block took: the whole block less what it takes besides its calls.

That is measured on the trusted reference runner: by empty blocks, which have the same orders and as
many outputs to hand over, and by the reference's own clock in its blocks, since a process needs
more time to begin and to answer when it has worked.  Between its answer and the end of the
hand-over a side has nothing to compute.  What its hand-over takes beyond those of empty blocks and
of the reference's own counts as calls.  Pure.
"""

from __future__ import annotations

from collections import deque
from statistics import median

from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import SIDES, Side
from protocol.values import Value

LEAST_US = 1e-3  # what a block less an empty one never goes below


class TimedWindow(Value, frozen=True, kw_only=True):
    """Seconds of one timed window."""

    block_s: float  # from the thaw to the answer that the calls are done
    hand_over_s: float  # until the outputs are known, the side is frozen and the card is idle
    waited_s: float = 0.0  # of its threads, for a processor
    call_s: float = 0.0  # a call once they go on, by the reference's own clock; 0: unknown
    left_s: float = 0.0  # the card worked on after the stream of the calls was done, as told

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

    def net_us(
        self,
        window: TimedWindow,
        calls: int,
        besides: ReferenceBlocks,
        usual_hand_over_s: float = 0.0,
    ) -> float:
        """Return the microseconds of each of the calls in a window.

        `besides`: what blocks of the reference take besides their calls, beyond empty ones.
        `usual_hand_over_s`: of this side's last blocks; one may be late by chance, but not most.
        """
        longest_s = max(each.hand_over_s for each in self._windows)
        single_s, usual_s = besides.allowed_s(self.hand_over_s, longest_s, calls)
        late_s = max(0.0, window.hand_over_s - single_s, usual_hand_over_s - usual_s)
        calls_s = window.block_s - besides.besides_s(self.block_s)
        return max(LEAST_US, (calls_s + late_s) * 1e6 / calls)


class ReferenceBlocks:
    """What the reference's last blocks took besides their calls, by its own clock as well.

    Both sides may take as much.  The reference is trusted, and the limits of the policy hold where
    a candidate's leftover work has delayed it.
    """

    def __init__(self, least_calls: int = POLICY.least_clocked_calls) -> None:
        """`least_calls`: of a block whose own clock says enough."""
        self._least_calls = least_calls
        self._besides_s: deque[float] = deque(maxlen=POLICY.reference_blocks)
        self._beyond_s: deque[float] = deque(maxlen=POLICY.reference_blocks)  # of hand-overs
        self._calls, self._block_s = 1, 0.0  # of each block, and of the last one

    def add(self, window: TimedWindow, calls: int, empty: EmptyBlocks) -> None:
        """Add a block."""
        if calls != self._calls:
            self._besides_s.clear()
            self._beyond_s.clear()
            self._calls = calls
        self._block_s = window.block_s
        self._beyond_s.append(max(0.0, window.hand_over_s - empty.hand_over_s))
        if window.call_s and calls >= self._least_calls:
            self._besides_s.append(window.block_s - calls * window.call_s)

    def besides_s(self, empty_s: float) -> float:
        """Return what a block takes besides its calls; `empty_s`: what an empty one takes."""
        if not self._besides_s:
            return empty_s
        share_s = max(POLICY.max_besides_share * self._block_s, POLICY.usual_besides_s)
        most_s = min(POLICY.max_besides_s, share_s)
        return min(max(empty_s, median(self._besides_s)), empty_s + most_s)

    def allowed_s(self, empty_s: float, longest_s: float, calls: int) -> tuple[float, float]:
        """Return how long one hand-over, and the usual one, may take before it counts as calls.

        `empty_s`, `longest_s`: what those of empty blocks take, and the longest of them.
        """
        beyond = self._beyond_s or [0.0]
        an_output_s = min(median(beyond) / self._calls, POLICY.max_output_s)
        outputs_s = min(calls, self._calls) * an_output_s
        more_s = max(0, calls - self._calls) * an_output_s
        single_s = min(max(beyond), POLICY.max_single_hand_over_s + outputs_s)
        usual_s = min(median(beyond), POLICY.max_hand_over_s + outputs_s)
        return (
            max(longest_s, empty_s + single_s) + more_s,
            empty_s + usual_s + POLICY.usual_hand_over_noise_s + more_s,
        )


class BlockTimes:
    """What the last blocks of a benchmark took, with and without calls."""

    def __init__(self, *, on_host: bool) -> None:
        self._empty: dict[int, EmptyBlocks] = {}  # by the calls of a block
        self._reference = ReferenceBlocks(
            POLICY.least_clocked_calls if on_host else POLICY.gpu_least_clocked_calls
        )
        self._last: dict[Side, deque[TimedWindow]] = {
            side: deque(maxlen=POLICY.reference_blocks) for side in SIDES
        }

    def has_empty(self, calls: int) -> bool:
        """Whether it is known what a block of so many calls takes without them."""
        return calls in self._empty

    def add_empty(self, window: TimedWindow, calls: int) -> None:
        """Add an empty block, which handed over as many outputs."""
        self._empty.setdefault(calls, EmptyBlocks()).add(window)

    def add(self, side: Side, window: TimedWindow, calls: int) -> None:
        """Add a block of a side; the reference's say what blocks take besides their calls."""
        self._last[side].append(window)
        if side == "reference":
            self._reference.add(window, calls, self._empty[calls])

    def forget(self, side: Side) -> None:
        """Forget a side's blocks: its next ones have other calls, or no candidate beside them."""
        self._last[side].clear()

    @property
    def candidate_block_s(self) -> float:
        """What the quickest of the candidate's last blocks took."""
        return min(window.block_s for window in self._last["candidate"])

    def net_us(self, side: Side, window: TimedWindow, calls: int) -> float:
        """Return the microseconds of each of the calls in a window.

        Both sides by the same rule: beside another program on a card hand-overs of both end
        milliseconds later, and on the candidate's figure alone that made modules 0.8 times as fast
        as themselves.  Work that a candidate leaves on the card delays the reference's, but not
        when it is timed alone.
        """
        usual_s = median(each.hand_over_s for each in self._last[side])
        return self._empty[calls].net_us(window, calls, self._reference, usual_s)
