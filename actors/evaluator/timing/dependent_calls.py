"""Whether a candidate's calls are as fast when each needs the output of the call before.

A candidate may compute many calls of a block together, in windows that are too small for the looks
at replaced inputs, and gain what its calls can't do one after the other: a module of many small
steps is as fast for sixty-four inputs as for one.  In a block whose inputs follow from outputs
(`children/dependent_inputs.py`) there is nothing to compute together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from actors.evaluator.sandbox.child_failures import Accusation
from actors.evaluator.timing.sides import Sides
from actors.evaluator.timing.slot_transfer import SlotTransfer
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import Side


class DependentCalls:
    """The blocks of one candidate whose inputs follow from outputs."""

    def __init__(self, transfer: SlotTransfer, sides: Sides) -> None:
        self._transfer = transfer
        self._sides = sides
        self._is_warm = False  # both sides have prepared what such a block needs
        self._least_s: dict[int, float] = {}  # what deciding took at least, by calls

    def require_as_fast(self, calls: int, usual_s: Mapping[Side, float]) -> None:
        """Accuse the candidate if its calls take longer one after the other.

        `calls`: of its usual blocks; `usual_s`: what a call of each side takes in usual blocks.
        Only blocks count beside which the reference's own calls take no longer than usual: else
        that is the machine.  One block of the candidate that is as fast as usual clears it.
        """
        count = min(calls, self._transfer.dependent_calls)
        if count < 2:  # one that decides, and one that is decided
            return
        deciding_s = self._deciding_s(count)
        longest_s = {side: POLICY.dependent_ratio * usual_s[side] for side in usual_s}
        call_s, counted = 0.0, 0
        for _try in range(POLICY.most_dependent_tries):
            call_s = self._call_s("candidate", count, deciding_s)
            if call_s <= longest_s["candidate"]:
                if call_s > 0:  # else deciding takes longer than a call, and hides it
                    self._transfer.tried.add(Accusation.CALLS_COMPUTED_TOGETHER)
                return
            counted += self._call_s("reference", count, deciding_s) <= longest_s["reference"]
            if counted == POLICY.dependent_tries:
                break
        else:
            return
        self._sides.accuse(
            Accusation.CALLS_COMPUTED_TOGETHER,
            f"a call takes {usual_s['candidate'] * 1e6:.4g} µs, but {call_s * 1e6:.4g} µs where "
            "its inputs follow from the output of the call before: it computes calls of a block "
            "together",
        )

    def _call_s(self, side: Side, count: int, deciding_s: float) -> float:
        """Return what a call takes at least, less what deciding its inputs takes.

        That counts twice: on a card a call may wait for the launches and for the card's own work,
        and on a host both are slower in turn than each of them alone (caches).
        """
        return (self._transfer.dependent_block(side, count) - 2 * deciding_s) / count

    def _deciding_s(self, count: int) -> float:
        """Return what a block of the reference takes that only decides inputs."""
        if not self._is_warm:
            self._transfer.dependent_block("candidate", count)
            self._transfer.dependent_block("reference", count, is_empty=True)
            self._is_warm = True
        # The quickest of all looks: what a busy machine adds would hide that calls take longer.
        took_s = [
            self._transfer.dependent_block("reference", count, is_empty=True)
            for _block in range(POLICY.empty_dependent_blocks)
        ]
        self._least_s[count] = min(*took_s, self._least_s.get(count, math.inf))
        return self._least_s[count]
