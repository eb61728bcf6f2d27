"""Fresh calls where the runner itself takes its inputs and hands its outputs over, on the clock.

So on a card, whose memory no other process can write to; and on a host that lets nobody into the
memory of others.  Who patches the runner may spare itself a copy: `outside` is for that.
"""

from __future__ import annotations

import os
import time
from itertools import accumulate

from actors.evaluator.examiner import Hand
from actors.evaluator.racing.results import Results
from actors.evaluator.racing.sides import SETTLE_S, Refused, Sides, Spent
from actors.evaluator.standard import Standard
from actors.evaluator.timing import Side
from actors.evaluator.verdicts import wrong
from actors.evaluator.wire.layout import sound, total_bytes
from actors.evaluator.wire.runner_orders import Bench, Collect, Collected, FeedAll, FromRunner


class Inside:
    """Fed, called and collected from by orders."""

    def __init__(self, standard: Standard, sides: Sides, results: Results, each: int) -> None:
        """`each`: the bytes that one call reads and writes."""
        self._standard = standard
        self._sides = sides
        self._results = results
        self._each = each
        self._on_host = standard.on_host
        self._memory: dict[tuple[Side, int], int] = {}  # descriptors

    def deal(self, calls: int) -> Hand:
        """Return fresh inputs."""
        return self._standard.examiner.deal(calls)

    def fresh(self, side: Side, hand: Hand) -> Spent:
        """Feed, call, collect; nothing of a candidate runs before or after."""
        calls = len(hand.inputs)
        size = calls * self._each
        memory = self._lent(side, size)
        with self._sides.moving(side):
            time.sleep(SETTLE_S if self._on_host else 0.0)
            parcel = hand.parcels[-1 if side == "candidate" else 0]
            self._sides.wake(side)
            fed_s, _answer = self._sides.ask(side, FeedAll(inputs=hand.inputs), [parcel])
            block_s, _answer = self._sides.ask(side, Bench(calls=calls, slots=calls))
            collected_s, answer = self._sides.ask(side, Collect(limit=size), [memory])
            self._take(side, memory, size, answer, calls)
        return Spent(fed_s=fed_s, block_s=block_s, collected_s=collected_s)

    def _lent(self, side: Side, size: int) -> int:
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

    def _take(self, side: Side, memory: int, size: int, answer: FromRunner, calls: int) -> None:
        if not isinstance(answer, Collected) or len(answer.outputs) != calls:
            raise Refused(wrong("in a timed block: an output for each call is not there", "time"))
        if not all(map(sound, answer.outputs)) or sum(map(total_bytes, answer.outputs)) > size:
            raise Refused(wrong("in a timed block: outputs are not what is expected", "time"))
        choices = self._results.choose(answer.outputs)
        ends = list(accumulate(map(total_bytes, answer.outputs)))
        parts = [(ends[call] - total_bytes(output), ends[call]) for call, output in choices]
        self._results.put_aside(side, choices, memory, size, parts)

    def overheads_s(self) -> tuple[float, float]:
        """Return what an empty block takes at least, and an empty one on fresh inputs: the same."""
        overhead_s = self._sides.overhead_s()
        return overhead_s, overhead_s

    def close(self) -> None:
        """Give the memory back."""
        while self._memory:
            os.close(self._memory.popitem()[1])
