"""Fresh calls where the runner itself takes its inputs and hands its outputs over, on the clock.

So on a card, whose memory no other process can write to; and on a host that lets nobody into the
memory of others.  Who patches the runner may spare itself a copy: `outside` is for that.
"""

from __future__ import annotations

import os
import time
from itertools import accumulate

from actors.evaluator.ipc.layout_checks import is_sound, total_bytes
from actors.evaluator.ipc.runner_orders import (
    CallRepeatedly,
    CollectOutputs,
    FromRunner,
    OutputsCollected,
    SetInputBatch,
)
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.reference.referee_client import InputBatch
from actors.evaluator.sandbox.child_failures import wrong_result
from actors.evaluator.timing.sides import SETTLE_S, CandidateFaultError, Sides, TimedWindow
from actors.evaluator.timing.spot_checks import SpotChecks
from actors.evaluator.timing.timing_statistics import Side


class RunnerTransfer:
    """Fed, called and collected from by orders."""

    def __init__(
        self, fixture: ReferenceFixture, sides: Sides, spot_checks: SpotChecks, each: int
    ) -> None:
        """`each`: the bytes that one call reads and writes."""
        self._fixture = fixture
        self._sides = sides
        self._spot_checks = spot_checks
        self._each = each
        self._on_host = fixture.on_host
        self._memory: dict[tuple[Side, int], int] = {}  # descriptors

    def draw_batch(self, calls: int) -> InputBatch:
        """Return fresh inputs."""
        return self._fixture.referee.draw_batch(calls)

    def timed_batch(self, side: Side, batch: InputBatch) -> TimedWindow:
        """Feed, call, collect; nothing of a candidate runs before or after."""
        calls = len(batch.inputs)
        size = calls * self._each
        memory = self._output_memory(side, size)
        with self._sides.running(side):
            time.sleep(SETTLE_S if self._on_host else 0.0)
            parcel = batch.buffers[-1 if side == "candidate" else 0]
            self._sides.wake(side)
            fed_s, _answer = self._sides.ask(side, SetInputBatch(inputs=batch.inputs), [parcel])
            block_s, _answer = self._sides.ask(side, CallRepeatedly(calls=calls, slots=calls))
            collected_s, answer = self._sides.ask(side, CollectOutputs(limit=size), [memory])
            self._take(side, memory, size, answer, calls)
        return TimedWindow(fed_s=fed_s, block_s=block_s, collected_s=collected_s)

    def _output_memory(self, side: Side, size: int) -> int:
        """Return memory for the outputs of a block that the other side never had.

        Or a candidate would find there what the reference made of the same inputs.  On the host it
        is new each time, or outputs could be computed right where they are to be handed over; on a
        card that takes too long.
        """
        for key in [key for key in self._memory if self._on_host or key[1] != size]:
            os.close(self._memory.pop(key))
        if (side, size) not in self._memory:
            self._memory[side, size] = self._fixture.referee.lend_memory(size)
        return self._memory[side, size]

    def _take(self, side: Side, memory: int, size: int, answer: FromRunner, calls: int) -> None:
        if not isinstance(answer, OutputsCollected) or len(answer.outputs) != calls:
            raise CandidateFaultError(
                wrong_result("in a timed block: an output for each call is not there", "time")
            )
        if not all(map(is_sound, answer.outputs)) or sum(map(total_bytes, answer.outputs)) > size:
            raise CandidateFaultError(
                wrong_result("in a timed block: outputs are not what is expected", "time")
            )
        choices = self._spot_checks.choose(answer.outputs)
        ends = list(accumulate(map(total_bytes, answer.outputs)))
        parts = [(ends[call] - total_bytes(output), ends[call]) for call, output in choices]
        self._spot_checks.stash(side, choices, memory, size, parts)

    def overheads_s(self) -> tuple[float, float]:
        """Return what an empty block takes at least, and an empty one on fresh inputs: the same."""
        overhead_s = self._sides.overhead_s()
        return overhead_s, overhead_s

    def close(self) -> None:
        """Give the memory back."""
        while self._memory:
            os.close(self._memory.popitem()[1])
