"""The outputs of a timed block that are compared: drawn when it is over, put aside at once."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TypeAlias

from actors.evaluator.ipc.layout_checks import Layout
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.reference.referee_client import InputBatch
from actors.evaluator.sandbox.child_failures import wrong_result
from actors.evaluator.timing.sides import CandidateFaultError
from actors.evaluator.timing.timing_statistics import Side

# Outputs of a block that are compared: small ones cost little, and who leaves out one call in nine
# must not get through by luck.
MIN_CHOSEN, MAX_CHOSEN, CHOSEN_BYTES = 2, 6, 2 << 20

ChosenOutput: TypeAlias = tuple[int, Layout]  # which call's, and what it looks like


class SpotChecks:
    """What is compared of the blocks of one hand."""

    def __init__(self, fixture: ReferenceFixture, each: int) -> None:
        """`each`: the bytes that one call reads and writes."""
        self._fixture = fixture
        self._each = each
        self._chosen: list[ChosenOutput] = []
        self._input_changes: set[Side] = set()  # who was seen to change inputs in timed calls

    def choose(self, outputs: Sequence[Layout]) -> list[ChosenOutput]:
        """Draw some; none where outputs are different each time."""
        if not self._fixture.is_deterministic:
            return []
        least = MIN_CHOSEN if self._fixture.on_host else 1
        count = max(least, min(MAX_CHOSEN, CHOSEN_BYTES // self._each))
        calls = sorted({secrets.randbelow(len(outputs)) for _choice in range(count)})
        return [(call, outputs[call]) for call in calls]

    def stash(
        self,
        side: Side,
        choices: list[ChosenOutput],
        memory: int,
        size: int,
        parts: Sequence[tuple[int, int]],
        *,
        strided: bool = False,
    ) -> None:
        """Copy what was chosen out of memory of this size.

        The reference's, too, whom nobody doubts: what comes next must find both alike.
        """
        if not choices:
            return
        kept = side == "candidate"
        layouts = tuple(output for _call, output in choices) if strided else ()
        self._fixture.referee.stash_outputs(memory, size, parts, strided=layouts, kept=kept)
        if kept:
            self._chosen = choices

    def note_inputs(self, side: Side, *, changed: bool) -> None:
        """Remember whether a side's timed calls leave their inputs as they were."""
        if changed:
            self._input_changes.add(side)

    def verify(self, batch: InputBatch) -> None:
        """Compare what was put aside of the candidate's outputs with what is expected.

        After the windows of a hand: the referee's threads would be in the way of the next one.
        """
        if self._input_changes == {"candidate"}:
            raise CandidateFaultError(
                wrong_result("in a timed call: an input is changed by the call", "time")
            )
        choices, self._chosen = self._chosen, []
        for number, (call, output) in enumerate(choices):
            reason = self._fixture.referee.compare_stashed(number, output, batch.first + call)
            if reason:
                raise CandidateFaultError(wrong_result(f"in a timed call: {reason}", "time"))
