"""Whether a candidate's calls are as fast when each needs the output of the call before.

A candidate may compute many calls of a block together, in windows that are too small for the looks
at replaced inputs, and gain what its calls can't do one after the other: a module of many small
steps is as fast for sixty-four inputs as for one.  In a block whose inputs follow from outputs
(`children/dependent_inputs.py`) there is nothing to compute together.
"""

from __future__ import annotations

from statistics import median

from actors.evaluator.sandbox.child_failures import Accusation
from actors.evaluator.timing.sides import Sides
from actors.evaluator.timing.slot_transfer import SlotTransfer
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import Side


class DependentCalls:
    """The blocks of one candidate whose inputs follow from outputs."""

    def __init__(self, transfer: SlotTransfer, sides: Sides, *, on_host: bool) -> None:
        self._on_host = on_host
        self._transfer = transfer
        self._sides = sides
        self._besides_s: dict[int, float] = {}  # what a block takes besides its calls, by these

    def require_as_fast(self, calls: int, usual_s: float) -> None:
        """Accuse the candidate if its calls take longer one after the other.

        `calls`: of its usual blocks; `usual_s`: what each takes there.
        """
        count = min(calls, self._transfer.dependent_calls)
        if count < 2:  # one that decides, and one that is decided
            return
        for _try in range(POLICY.dependent_tries):
            call_s = self._dependent_call_s("candidate", count)
            if call_s > POLICY.dependent_ratio * usual_s:
                # The machine may be slower now than it was.
                usual_s = max(
                    usual_s, self._transfer.timed_block("candidate", calls).whole_s / calls
                )
            if call_s <= POLICY.dependent_ratio * usual_s:
                self._transfer.tried.add(Accusation.CALLS_COMPUTED_TOGETHER)
                return
            if self._is_reference_slower(count):
                return
        self._sides.accuse(
            Accusation.CALLS_COMPUTED_TOGETHER,
            f"a call takes {usual_s * 1e6:.4g} µs, but {call_s * 1e6:.4g} µs where its inputs "
            "follow from the output of the call before: it computes calls of a block together",
        )

    def _dependent_call_s(self, side: Side, count: int) -> float:
        besides_s = self._besides(count)
        return (self._transfer.dependent_block(side, count) - besides_s) / count

    def _is_reference_slower(self, count: int) -> bool:
        """Whether the machine is at fault: the task's own calls take longer in turn, too."""
        usual_s = self._transfer.timed_block("reference", count).whole_s / count
        return self._dependent_call_s("reference", count) > POLICY.dependent_ratio * usual_s

    def _besides(self, count: int) -> float:
        """Return what a block takes besides its calls.

        That is what a block of the reference takes that only decides inputs.  A call that waits for
        the card has it twice: the launches, and the card's own work.
        """
        if count not in self._besides_s:
            self._transfer.dependent_block("candidate", count)  # it may prepare what it needs
            self._besides_s[count] = median(
                self._transfer.dependent_block("reference", count, is_empty=True)
                for _block in range(POLICY.empty_dependent_blocks)
            )
            if not self._on_host:
                self._besides_s[count] *= 2
        return self._besides_s[count]
