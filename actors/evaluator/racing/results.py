"""The outputs of a timed block: the memory that they are handed over in, and those compared."""

from __future__ import annotations

import os
import secrets
from typing import TypeAlias

from actors.evaluator.examiner import Hand
from actors.evaluator.racing.sides import Refused
from actors.evaluator.standard import Standard
from actors.evaluator.timing import Side
from actors.evaluator.verdicts import wrong
from actors.evaluator.wire.layout import Layout, sound, total_bytes
from actors.evaluator.wire.runner_orders import Collected, FromRunner

# Outputs of a block that are compared: small ones cost little, and who leaves out one call in nine
# must not get through by luck.
CHOSEN, MOST_CHOSEN, CHOSEN_BYTES = 2, 6, 2 << 20

Check: TypeAlias = list[tuple[int, Layout]]  # outputs put aside: which call's, what it looks like


class Results:
    """What both sides hand over, block after block."""

    def __init__(self, standard: Standard, each: int) -> None:
        """`each`: the bytes that one call reads and writes."""
        self._standard = standard
        self._each = each
        self._on_host = standard.task.device == "cpu"
        self._memory: dict[tuple[Side, int], int] = {}  # descriptors
        self._check: Check = []

    def memory(self, side: Side, size: int) -> int:
        """Return memory for the outputs of a block that the other side never had.

        Or a candidate would find there what the reference made of the same inputs.  On the host it
        is new each time, or outputs could be computed right where they are to be handed over; on a
        card that takes too long.
        """
        for key in [key for key in self._memory if self._on_host or key[1] != size]:
            os.close(self._memory.pop(key))
        if (side, size) not in self._memory:
            self._memory[side, size] = self._standard.examiner.lend(size)
        return self._memory[side, size]

    def take(self, side: Side, memory: int, size: int, answer: FromRunner, calls: int) -> None:
        """Put some outputs aside at once; which ones is drawn only now.

        The reference's, too, whom nobody doubts: what comes next must find both alike.
        """
        if not isinstance(answer, Collected) or len(answer.outputs) != calls:
            raise Refused(wrong("in a timed block: an output for each call is not there", "time"))
        if not all(map(sound, answer.outputs)) or sum(map(total_bytes, answer.outputs)) > size:
            raise Refused(wrong("in a timed block: outputs are not what is expected", "time"))
        if not self._standard.steady:
            return
        least = CHOSEN if self._on_host else 1
        choices = max(least, min(MOST_CHOSEN, CHOSEN_BYTES // self._each))
        chosen = sorted({secrets.randbelow(calls) for _choice in range(choices)})
        kept = side == "candidate"
        self._standard.examiner.take(memory, size, answer.outputs, chosen, kept=kept)
        if kept:
            self._check = [(call, answer.outputs[call]) for call in chosen]

    def verify(self, hand: Hand) -> None:
        """Compare what was put aside of the candidate's outputs with what is expected.

        After the windows of a hand: the referee's threads would be in the way of the next one.
        """
        check, self._check = self._check, []
        for number, (call, output) in enumerate(check):
            reason = self._standard.examiner.judge_taken(number, output, hand.first + call)
            if reason:
                raise Refused(wrong(f"in a timed call: {reason}", "time"))

    def close(self) -> None:
        """Give the memory back."""
        while self._memory:
            os.close(self._memory.popitem()[1])
