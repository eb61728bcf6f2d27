"""Whether a candidate's calls are as fast when each needs the output of the call before.

A candidate may compute many calls of a block together, in windows that are too small for the looks
at replaced inputs, and gain what its calls can't do one after the other: a module of many small
steps is as fast for sixty-four inputs as for one.  In a block whose inputs follow from outputs
(`children/dependent_inputs.py`) there is nothing to compute together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import median

from actors.evaluator.sandbox.child_failures import Accusation
from actors.evaluator.timing.net_time import TimedWindow
from actors.evaluator.timing.sides import Sides
from actors.evaluator.timing.slot_transfer import SlotTransfer
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import Side


class DependentCalls:
    """The blocks of one candidate whose inputs follow from outputs."""

    def __init__(
        self,
        transfer: SlotTransfer,
        sides: Sides,
        ratio: float,
        *,
        is_suspected: bool = False,
        is_held_up: Callable[[TimedWindow], bool] = lambda _window: False,
    ) -> None:
        """`ratio`: to what a call takes as a rule; one that takes more is too slow.

        `is_suspected`: another process of the candidate was accused of this.  `is_held_up`: whether
        other programs had a block's processors.  While inputs are decided a candidate's threads may
        rest, and are woken for each call: beside other programs that alone is slow.
        """
        self._transfer = transfer
        self._ratio = ratio
        self._is_suspected = is_suspected
        self._is_held_up = is_held_up
        self.ratios: list[float] = []  # of each look
        self._held_up = 0  # blocks that counted for nothing, since the machine was busy
        self._pairs: list[float] = []  # the same, beside the group before it
        self._tries = 0  # of such pairs
        self._sides = sides
        self._is_warm = False  # both sides have prepared what such a block needs
        self._least_s: dict[int, float] = {}  # what deciding took at least, by calls

    @property
    def is_undecided(self) -> bool:
        """Whether further groups are needed to say whether a suspected candidate is too slow."""
        is_short = len(self._pairs) < POLICY.dependent_tries
        return 0 < self._tries < POLICY.most_dependent_tries and is_short

    @property
    def note(self) -> str:
        """What a reader has to know of the looks; "" where they have said something, or can't."""
        if self.ratios or not self._held_up:
            return ""
        return (
            "other programs held it up in every block whose inputs follow from outputs: whether it "
            "computes calls together is not known; judge it again on a machine with less other work"
        )

    def look(
        self, calls: int, usual_s: Mapping[Side, float], group_s: Mapping[Side, float]
    ) -> None:
        """Accuse the candidate if its calls take longer one after the other.

        `calls`: of its usual blocks; `usual_s`, `group_s`: what a call of each side takes in usual
        blocks, and took in the last group.
        """
        count = min(calls, self._transfer.dependent_calls)
        if count < 2:  # one that decides, and one that is decided
            return
        if self._is_suspected:
            self._look_beside(count, group_s)
        elif usual_s["candidate"] < usual_s["reference"]:  # else it has gained nothing
            self._require_as_fast(count, usual_s)

    def _look_beside(self, count: int, group_s: Mapping[Side, float]) -> None:
        """Compare a block of each side with the group before it; the median of all such decides.

        A host may be half as fast for a second as before, and calls that wait for it alone are as
        much slower, whatever the reference's wait for.
        """
        deciding_s = self._deciding_s(count)
        window = self._transfer.dependent_block("candidate", count)
        candidate_s, reference_s = window.whole_s / count, self._call_s("reference", count)
        self._tries += 1
        is_slower = reference_s - deciding_s > self._ratio * group_s["reference"]
        if is_slower or self._is_held_up(window):  # that is the machine
            self._held_up += 1
            return
        more_s = reference_s - group_s["reference"]
        self._pairs.append((candidate_s - max(deciding_s, more_s)) / group_s["candidate"])
        if len(self._pairs) >= POLICY.dependent_tries:
            slowdown = median(self._pairs)
            self._require_within(slowdown * group_s["candidate"], group_s["candidate"])
            self._told(slowdown)

    def _require_as_fast(self, count: int, usual_s: Mapping[Side, float]) -> None:
        """Accuse the candidate if all of some blocks are too slow.

        Only blocks count that nothing holds up, and beside which the reference's own calls take no
        longer than usual: else that is the machine.  One block of the candidate that is as fast as
        usual clears it.  What is taken off for deciding is what that takes (`_deciding_s`), or what
        it adds to the calls of the reference, if that is more.
        """
        deciding_s = self._deciding_s(count)
        longest_s = {side: self._ratio * usual_s[side] for side in usual_s}
        least_s = more_s = math.inf  # a call of the candidate; one of the reference, beyond usual
        counted = 0
        for _try in range(POLICY.most_dependent_tries):
            window = self._transfer.dependent_block("candidate", count)
            least_s = min(least_s, window.whole_s / count)
            if least_s - deciding_s <= longest_s["candidate"]:
                if least_s > deciding_s:  # else deciding takes longer than a call, and hides it
                    self._told((least_s - deciding_s) / usual_s["candidate"])
                return
            reference_s = self._call_s("reference", count)
            is_usual = reference_s - deciding_s <= longest_s["reference"]
            is_counted = is_usual and not self._is_held_up(window)
            counted += is_counted
            self._held_up += not is_counted
            more_s = min(more_s, reference_s - usual_s["reference"])
            if counted == POLICY.dependent_tries:
                break
        else:
            return
        call_s = least_s - max(deciding_s, more_s)
        self._require_within(call_s, usual_s["candidate"])
        self._told(call_s / usual_s["candidate"])

    def _require_within(self, call_s: float, usual_s: float) -> None:
        if call_s > self._ratio * usual_s:
            self._sides.accuse(
                Accusation.CALLS_COMPUTED_TOGETHER,
                f"a call takes {usual_s * 1e6:.4g} µs, but {call_s * 1e6:.4g} µs where its inputs "
                "follow from the output of the call before: it computes calls of a block together",
            )

    def _told(self, ratio: float) -> None:
        """Note that a look has said something of the candidate."""
        self._transfer.tried.add(Accusation.CALLS_COMPUTED_TOGETHER)
        self.ratios.append(ratio)

    def _call_s(self, side: Side, count: int) -> float:
        """Return what a call takes in such a block, with deciding its inputs."""
        return self._transfer.dependent_block(side, count).whole_s / count

    def _deciding_s(self, count: int) -> float:
        """Return what deciding the inputs of a call adds to it, at most, where nothing else does.

        A call is slower between other code than behind its like (caches), and on a card it may wait
        for launches as well as for the card's work: that may take as long as deciding, but takes no
        more than some microseconds.
        """
        alone_s = self._deciding_alone_s(count) / count
        return alone_s + min(alone_s, POLICY.between_calls_s)

    def _deciding_alone_s(self, count: int) -> float:
        """Return what a block of the reference takes that only decides inputs."""
        if not self._is_warm:
            self._transfer.dependent_block("candidate", count)
            self._transfer.dependent_block("reference", count, is_empty=True)
            self._is_warm = True
        # The quickest of all looks: what a busy machine adds would hide that calls take longer.
        took_s = [
            self._transfer.dependent_block("reference", count, is_empty=True).whole_s
            for _block in range(POLICY.empty_dependent_blocks)
        ]
        self._least_s[count] = min(*took_s, self._least_s.get(count, math.inf))
        return self._least_s[count]
