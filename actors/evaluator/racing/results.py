"""The outputs of a timed block that are compared: drawn when it is over, put aside at once."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TypeAlias

from actors.evaluator.examiner import Hand
from actors.evaluator.racing.sides import Refused
from actors.evaluator.standard import Standard
from actors.evaluator.timing import Side
from actors.evaluator.verdicts import wrong
from actors.evaluator.wire.layout import Layout

# Outputs of a block that are compared: small ones cost little, and who leaves out one call in nine
# must not get through by luck.
CHOSEN, MOST_CHOSEN, CHOSEN_BYTES = 2, 6, 2 << 20

Choice: TypeAlias = tuple[int, Layout]  # which call's, and what it looks like


class Results:
    """What is compared of the blocks of one hand."""

    def __init__(self, standard: Standard, each: int) -> None:
        """`each`: the bytes that one call reads and writes."""
        self._standard = standard
        self._each = each
        self._choices: list[Choice] = []
        self._changing: set[Side] = set()  # who was seen to change inputs in timed calls

    def choose(self, outputs: Sequence[Layout]) -> list[Choice]:
        """Draw some; none where outputs are different each time."""
        if not self._standard.steady:
            return []
        least = CHOSEN if self._standard.on_host else 1
        count = max(least, min(MOST_CHOSEN, CHOSEN_BYTES // self._each))
        calls = sorted({secrets.randbelow(len(outputs)) for _choice in range(count)})
        return [(call, outputs[call]) for call in calls]

    def put_aside(
        self,
        side: Side,
        choices: list[Choice],
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
        self._standard.examiner.take(memory, size, parts, strided=layouts, kept=kept)
        if kept:
            self._choices = choices

    def note_inputs(self, side: Side, *, changed: bool) -> None:
        """Remember whether a side's timed calls leave their inputs as they were."""
        if changed:
            self._changing.add(side)

    def verify(self, hand: Hand) -> None:
        """Compare what was put aside of the candidate's outputs with what is expected.

        After the windows of a hand: the referee's threads would be in the way of the next one.
        """
        if self._changing == {"candidate"}:
            raise Refused(wrong("in a timed call: an input is changed by the call", "time"))
        choices, self._choices = self._choices, []
        for number, (call, output) in enumerate(choices):
            reason = self._standard.examiner.judge_taken(number, output, hand.first + call)
            if reason:
                raise Refused(wrong(f"in a timed call: {reason}", "time"))
