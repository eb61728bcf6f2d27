"""The judge's hold on a task's referee: draws inputs, keeps what is expected of them, compares.

The referee runs the task's own code, which is trusted; what it compares are bytes that a candidate
wrote.  If it gives no good answer that is nobody's verdict: `failed` makes the error.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from typing import Literal

from actors.evaluator.ipc import shared_memory
from actors.evaluator.ipc.layout_checks import Layout, difference, total_bytes
from actors.evaluator.ipc.orders import CandidateRaised, InputKind, Order
from actors.evaluator.ipc.referee_orders import (
    BatchDrawn,
    CompareBytes,
    Compared,
    ComputeExpected,
    DrawBatch,
    DrawInputs,
    ExpectedLayout,
    ForgetDraws,
    FreshBuffers,
    FromReferee,
    InputsDrawn,
    LendMemory,
    RestoreParameters,
    StashOutputs,
)
from actors.evaluator.ipc.runner_orders import CallReturned, FromRunner, SetInputs, WriteTensors
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.child_failures import CandidateFault, fault_from_child
from protocol.values import Stage, Value


class DrawnInputs(Value, frozen=True, kw_only=True):
    """Fresh inputs: their number with the referee, what they look like, where their bytes are."""

    number: int
    inputs: Layout
    buffer: int
    seed: int

    def set_inputs_order(self, slot: int) -> tuple[SetInputs, list[int]]:
        """Return the order that puts these inputs into a slot."""
        return SetInputs(slot=slot, inputs=self.inputs), [self.buffer]


class InputBatch(Value, frozen=True, kw_only=True):
    """Fresh inputs of the calls of one block."""

    first: int  # the first one's number with the referee
    inputs: tuple[Layout, ...]
    buffers: list[int]  # the reference's first; on the host one does for both

    def close(self) -> None:
        """Let the bytes go."""
        for buffer in self.buffers:
            os.close(buffer)


class RefereeClient:
    """One task's referee, asked."""

    def __init__(
        self,
        referee: ChildClient[FromReferee],
        failure: Callable[[object], Exception],
        *,
        check_s: float,
        uses_device_memory: bool,
    ) -> None:
        """`uses_device_memory`: whether bytes are handed over in the device's memory, not the
        host's.
        """
        self._child = referee
        self._failure = failure
        self._check_s = check_s
        self.uses_device_memory = uses_device_memory
        self._restored: tuple[str, ...] = ()
        self._seeds: dict[int, int] = {}  # of the calls on each draw

    def fresh_buffers(self) -> list[int]:
        """Return what modules are made of in memory that no candidate has held."""
        return self._ask(FreshBuffers())[1]

    def restore_parameters(self, names: tuple[str, ...]) -> None:
        """Let the reference have these parameters as they were constructed, for one candidate."""
        if names != self._restored:
            self._ask(RestoreParameters(names=names))
            self._restored = names

    def draw(self, kind: InputKind = "plain") -> DrawnInputs:
        """Draw fresh inputs with a fresh secret seed; the caller closes the parcel."""
        said, carried = self._ask(DrawInputs(seed=secrets.randbits(62), kind=kind))
        if not isinstance(said, InputsDrawn):
            raise self._failure(said)
        call_seed = secrets.randbits(62)
        self._seeds[said.draw] = call_seed
        return DrawnInputs(number=said.draw, inputs=said.inputs, buffer=carried[0], seed=call_seed)

    def expected_layout(self, draw: int) -> Layout:
        """Return what the outputs of a draw look like; the reference is computed now, or was."""
        said, _carried = self._ask(ComputeExpected(draw=draw, seed=self._seeds[draw]))
        if not isinstance(said, ExpectedLayout):
            raise self._failure(said)
        return said.outputs

    def draw_batch(self, count: int, *, strided: bool = False) -> InputBatch:
        """Draw fresh inputs `count` times, for timed calls; the caller closes the hand.

        `strided`: their bytes are to lie as strides say, not in logical order.
        """
        order = DrawBatch(seed=secrets.randbits(62), count=count, strided=strided)
        said, carried = self._ask(order)
        if not isinstance(said, BatchDrawn):
            raise self._failure(said)
        for draw in range(said.first, said.first + count):
            self._seeds[draw] = secrets.randbits(62)
        return InputBatch(first=said.first, inputs=said.inputs, buffers=carried)

    def lend_memory(self, size: int) -> int:
        """Return memory that `size` bytes of results can be written to; the caller closes it."""
        if not self.uses_device_memory:
            return shared_memory.allocate_unsealed(size)
        _said, carried = self._ask(LendMemory(size=size))
        return carried[0]

    def stash_outputs(
        self,
        memory: int,
        size: int,
        parts: Sequence[tuple[int, int]],
        *,
        strided: tuple[Layout, ...] = (),
        kept: bool = True,
    ) -> None:
        """Copy parts out of memory that a candidate may still write to.

        `strided`: what each part is, where bytes lie as strides say instead of in logical order.
        """
        self._ask(StashOutputs(parts=tuple(parts), size=size, strided=strided, keep=kept), [memory])

    def compare_stashed(self, number: int, output: Layout, draw: int) -> str:
        """Compare one of the outputs that were taken; return what is wrong with it."""
        differs = difference(self.expected_layout(draw), output)
        if differs:
            return differs
        said, _carried = self._ask(CompareBytes(draw=draw, what="output", stashed=number))
        if not isinstance(said, Compared):
            raise self._failure(said)
        return said.reason

    def forget(self, draw: int, count: int = 1) -> None:
        """Let the memory of draws go."""
        for number in range(draw, draw + count):
            self._seeds.pop(number, None)
        self._ask(ForgetDraws(draw=draw, count=count))

    def compare_output(
        self,
        candidate: ChildClient[FromRunner],
        draw: int,
        stage: Stage,
        called: CallReturned,
        number: int,
        *,
        share: bool = False,
    ) -> Compared | CandidateFault:
        """Compare an output that the candidate holds with what is expected of `draw`."""
        expected = self.expected_layout(draw)
        differs = difference(expected, called.output)
        if differs:
            return Compared(reason=differs)
        order = WriteTensors(what="output", number=number)
        return self._compare(candidate, order, expected, draw, stage, share=share)

    def compare_inputs(
        self, candidate: ChildClient[FromRunner], slot: int, drawn: DrawnInputs
    ) -> Compared | CandidateFault:
        """Compare a slot's inputs, after the call, with what the reference leaves of them."""
        order = WriteTensors(what="inputs", number=slot)
        return self._compare(candidate, order, drawn.inputs, drawn.number, "check")

    def _compare(
        self,
        candidate: ChildClient[FromRunner],
        order: WriteTensors,
        layout: Layout,
        draw: int,
        stage: Stage,
        *,
        share: bool = False,
    ) -> Compared | CandidateFault:
        size = total_bytes(layout)
        memory = self.lend_memory(size)
        try:
            written = WriteTensors(what=order.what, number=order.number, limit=size)
            answer = candidate.ask(written, self._check_s, [memory])
            if isinstance(answer, ChildFailure) or isinstance(answer[0], CandidateRaised):
                return fault_from_child(answer, stage, candidate.output.text())
            what: Literal["output", "inputs"] = "inputs" if order.what == "inputs" else "output"
            said, _carried = self._ask(CompareBytes(draw=draw, what=what, share=share), [memory])
        finally:
            os.close(memory)
        if not isinstance(said, Compared):
            raise self._failure(said)
        return said

    def _ask(self, order: Order, carried: list[int] | None = None) -> tuple[FromReferee, list[int]]:
        answer = self._child.ask(order, self._check_s, carried or [])
        if isinstance(answer, ChildFailure):
            raise self._failure(answer)
        return answer
