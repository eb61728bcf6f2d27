"""What the calls of a block took: the whole block less what it takes besides its calls.

That is measured on the trusted reference runner: by empty blocks, which have the same orders and as
many outputs to hand over, and by the reference's own clock in its blocks, since a process needs
more time to begin and to answer when it has worked.  Between its answer and the end of the
hand-over a side has nothing to compute.  What its hand-over takes beyond those of empty blocks and
of the reference's own counts as calls.

What is kept from one group of blocks to the next is the same for both sides.  Otherwise all groups
would be off by as much in one direction, and their spread, which the interval is made of, would
say nothing of it.  Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median, median_low

from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import Side
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

    def __init__(self, blocks_s: deque[float] | None = None) -> None:
        """`blocks_s`: what empty blocks took that have other numbers of outputs, too."""
        self._blocks_s = _last_empty() if blocks_s is None else blocks_s
        self._hand_overs_s = _last_empty()

    def add(self, window: TimedWindow) -> None:
        """Add a new one; the oldest goes."""
        self._blocks_s.append(window.block_s)
        self._hand_overs_s.append(window.hand_over_s)

    @property
    def block_s(self) -> float:
        """What a block takes without calls, whatever the number of its outputs."""
        return median(self._blocks_s)

    @property
    def hand_over_s(self) -> float:
        """What its hand-over takes."""
        return median(self._hand_overs_s)

    def net_us(
        self,
        window: TimedWindow,
        calls: int,
        besides: ReferenceBlocks,
        usual_hand_over_s: float = 0.0,
    ) -> float:
        """Return the microseconds of each of the calls in a window.

        `besides`: what blocks of the reference take besides their calls, beyond empty ones.
        `usual_hand_over_s`: of this side's blocks in the group; one may be late by chance, but not
        most.
        """
        longest_s = max(self._hand_overs_s)
        single_s, usual_s = besides.allowed_s(self.hand_over_s, longest_s, calls)
        late_s = max(0.0, window.hand_over_s - single_s, usual_hand_over_s - usual_s)
        calls_s = window.block_s - besides.besides_s(self.block_s)
        return max(LEAST_US, (calls_s + late_s) * 1e6 / calls)


def _last_empty() -> deque[float]:
    return deque(maxlen=POLICY.empty_blocks)


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
        self._empty_s = _last_empty()  # of all of them
        self._reference = ReferenceBlocks(
            POLICY.least_clocked_calls if on_host else POLICY.gpu_least_clocked_calls
        )
        self._candidate_s: deque[float] = deque(maxlen=POLICY.reference_blocks)

    def has_empty(self, calls: int) -> bool:
        """Whether it is known what a block of so many calls takes without them."""
        return calls in self._empty

    def add_empty(self, window: TimedWindow, calls: int) -> None:
        """Add an empty block, which handed over as many outputs."""
        self._empty.setdefault(calls, EmptyBlocks(self._empty_s)).add(window)

    def add(self, side: Side, window: TimedWindow, calls: int) -> None:
        """Add a block of a side; the reference's say what blocks take besides their calls."""
        if side == "reference":
            self._reference.add(window, calls, self._empty[calls])
        else:
            self._candidate_s.append(window.block_s)

    def forget_candidate(self) -> None:
        """Forget the candidate's blocks: its next ones have other calls."""
        self._candidate_s.clear()

    @property
    def candidate_block_s(self) -> float:
        """What the quickest of the candidate's last blocks took."""
        return min(self._candidate_s)

    def net_us(self, windows: Sequence[TimedWindow], calls: int) -> list[float]:
        """Return the microseconds of each of the calls in a side's blocks of one group.

        Both sides by the same rule: beside another program on a card hand-overs of both end
        milliseconds later, and on the candidate's figure alone that made modules 0.8 times as fast
        as themselves.  Work that a candidate leaves on the card delays the reference's, but not
        when it is timed alone.  The usual hand-over is that of these blocks, not of earlier ones.
        """
        usual_s = median_low(each.hand_over_s for each in windows)
        empty = self._empty[calls]
        return [empty.net_us(each, calls, self._reference, usual_s) for each in windows]
