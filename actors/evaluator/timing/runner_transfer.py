"""Runner transfer: the runner sets its own inputs and hands its outputs over, on the clock.

It is used on a GPU, whose memory no other process can write to, and on a host that does not permit
access to the memory of other processes.  A candidate that patches the runner may save itself a
copy; `host_transfer` prevents that.
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
from actors.evaluator.timing.sides import CandidateFaultError, Sides, TimedWindow
from actors.evaluator.timing.spot_checks import SpotChecks
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import Side


class RunnerTransfer:
    """A side that is given inputs, called, and asked for its outputs by orders."""

    def __init__(
        self, fixture: ReferenceFixture, sides: Sides, spot_checks: SpotChecks, bytes_per_call: int
    ) -> None:
        """`bytes_per_call`: the bytes that one call reads and writes."""
        self._fixture = fixture
        self._sides = sides
        self._spot_checks = spot_checks
        self._bytes_per_call = bytes_per_call
        self._on_host = fixture.on_host
        self._memory: dict[tuple[Side, int], int] = {}  # descriptors, by side and size

    def draw_batch(self, calls: int) -> InputBatch:
        """Return fresh inputs."""
        return self._fixture.referee.draw_batch(calls)

    def timed_batch(self, side: Side, batch: InputBatch) -> TimedWindow:
        """Set inputs, call, collect outputs; the candidate is frozen before and after."""
        calls = len(batch.inputs)
        size = calls * self._bytes_per_call
        memory = self._output_memory(side, size)
        with self._sides.running(side):
            time.sleep(POLICY.settle_s if self._on_host else 0.0)
            buffer = batch.buffers[-1 if side == "candidate" else 0]
            self._sides.wake(side)
            input_s, _answer = self._sides.ask(side, SetInputBatch(inputs=batch.inputs), [buffer])
            block_s, _answer = self._sides.ask(side, CallRepeatedly(calls=calls, slots=calls))
            output_s, answer = self._sides.ask(side, CollectOutputs(limit=size), [memory])
            self._stash_some(side, memory, size, answer, calls)
        return TimedWindow(input_s=input_s, block_s=block_s, output_s=output_s)

    def _output_memory(self, side: Side, size: int) -> int:
        """Return memory for a block's outputs that the other side never had.

        Otherwise a candidate would find the reference's outputs of the same inputs there.  On a
        host the memory is new each time, or a candidate could compute outputs right where they are
        to be handed over.  On a GPU new memory takes too long.
        """
        for key in [key for key in self._memory if self._on_host or key[1] != size]:
            os.close(self._memory.pop(key))
        if (side, size) not in self._memory:
            self._memory[side, size] = self._fixture.referee.lend_memory(size)
        return self._memory[side, size]

    def _stash_some(
        self, side: Side, memory: int, size: int, answer: FromRunner, calls: int
    ) -> None:
        """Have some outputs copied; they are drawn by lot only now."""
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
        """Return what an empty block takes at least, and the same again for a fresh block."""
        overhead_s = self._sides.overhead_s()
        return overhead_s, overhead_s

    def close(self) -> None:
        """Release the memory for outputs."""
        while self._memory:
            os.close(self._memory.popitem()[1])
