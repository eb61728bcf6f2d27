"""The judge's client of a task's referee, which draws inputs, computes outputs and compares.

The referee runs the task's own code, which is trusted; the bytes that it compares are written by a
candidate.  If the referee gives no good answer, that is no candidate's verdict: `failure` makes the
error.
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
    DescribeTask,
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
    TaskDescribed,
)
from actors.evaluator.ipc.runner_orders import CallReturned, FromRunner, SetInputs, WriteTensors
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.child_failures import CandidateFault, fault_from_child
from protocol.values import Stage, Value


class DrawnInputs(Value, frozen=True, kw_only=True):
    """Fresh inputs."""

    number: int  # by which the referee knows them
    inputs: Layout
    buffer: int  # the descriptor of their bytes
    seed: int  # of the call on them

    def set_inputs_order(self, slot: int) -> tuple[SetInputs, list[int]]:
        """Return the order that puts these inputs into a slot."""
        return SetInputs(slot=slot, inputs=self.inputs), [self.buffer]


class InputBatch(Value, frozen=True, kw_only=True):
    """Fresh inputs of the calls of one block."""

    first: int  # the number by which the referee knows the first inputs
    inputs: tuple[Layout, ...]
    buffers: list[int]  # descriptors, the reference's first; on a host both sides use one

    def close(self) -> None:
        """Close the descriptors of the bytes."""
        for buffer in self.buffers:
            os.close(buffer)


class RefereeClient:
    """Asks one task's referee."""

    def __init__(
        self,
        referee: ChildClient[FromReferee],
        failure: Callable[[object], Exception],
        *,
        check_s: float,
        uses_device_memory: bool,
    ) -> None:
        """`failure` makes the error for an answer that is no good.

        `uses_device_memory`: whether bytes are passed in the device's memory, not the host's.
        """
        self._child = referee
        self._failure = failure
        self._check_s = check_s
        self.uses_device_memory = uses_device_memory
        self._restored: tuple[str, ...] = ()
        self._seeds: dict[int, int] = {}  # of the call on each draw

    def fresh_buffers(self) -> list[int]:
        """Return init inputs and parameters in memory that no candidate has had."""
        return self._ask(FreshBuffers())[1]

    def restore_parameters(self, names: tuple[str, ...]) -> None:
        """Give the reference these parameters as they were constructed, for one candidate."""
        if names != self._restored:
            self._ask(RestoreParameters(names=names))
            self._restored = names

    def describe_task(self) -> TaskDescribed | None:
        """Return what is known of the task; None where the referee can't find out."""
        described, _carried = self._ask(DescribeTask(seed=secrets.randbits(62)))
        return described if isinstance(described, TaskDescribed) else None

    def draw(self, kind: InputKind = "plain") -> DrawnInputs:
        """Draw fresh inputs with a fresh secret seed; the caller closes the buffer."""
        drawn, carried = self._ask(DrawInputs(seed=secrets.randbits(62), kind=kind))
        if not isinstance(drawn, InputsDrawn):
            raise self._failure(drawn)
        seed = secrets.randbits(62)
        self._seeds[drawn.draw] = seed
        return DrawnInputs(number=drawn.draw, inputs=drawn.inputs, buffer=carried[0], seed=seed)

    def expected_layout(self, draw: int) -> Layout:
        """Return the layout of a draw's outputs, which are computed now if they were not before."""
        expected, _carried = self._ask(ComputeExpected(draw=draw, seed=self._seeds[draw]))
        if not isinstance(expected, ExpectedLayout):
            raise self._failure(expected)
        return expected.outputs

    def draw_batch(self, count: int, *, strided: bool = False) -> InputBatch:
        """Draw fresh inputs `count` times, for timed calls; the caller closes the batch.

        `strided`: their bytes are to be in the order of their strides, not in logical order.
        """
        order = DrawBatch(seed=secrets.randbits(62), count=count, strided=strided)
        drawn, carried = self._ask(order)
        if not isinstance(drawn, BatchDrawn):
            raise self._failure(drawn)
        for draw in range(drawn.first, drawn.first + count):
            self._seeds[draw] = secrets.randbits(62)
        return InputBatch(first=drawn.first, inputs=drawn.inputs, buffers=carried)

    def lend_memory(self, size: int) -> int:
        """Return memory that `size` bytes of results can be written to; the caller closes it."""
        if not self.uses_device_memory:
            return shared_memory.allocate_unsealed(size)
        _done, carried = self._ask(LendMemory(size=size))
        return carried[0]

    def stash_outputs(
        self,
        memory: int,
        size: int,
        parts: Sequence[tuple[int, int]],
        *,
        strided: tuple[Layout, ...] = (),
        keep: bool = True,
    ) -> None:
        """Copy parts out of memory that a candidate may still write to.

        `strided`: the layout of each part, if its bytes are in the order of its strides instead of
        in logical order.  `keep` False: the copies are made and dropped.
        """
        self._ask(StashOutputs(parts=tuple(parts), size=size, strided=strided, keep=keep), [memory])

    def compare_stashed(self, number: int, output: Layout, draw: int) -> str:
        """Compare one of the copied outputs; return what is wrong with it."""
        differs = difference(self.expected_layout(draw), output)
        if differs:
            return differs
        compared, _carried = self._ask(CompareBytes(draw=draw, what="output", stashed=number))
        if not isinstance(compared, Compared):
            raise self._failure(compared)
        return compared.reason

    def forget(self, draw: int, count: int = 1) -> None:
        """Have the referee free the memory of draws."""
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
        """Compare an output that the candidate holds with what is expected of `draw`.

        A wrong one is described.
        """
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
            comparison = CompareBytes(draw=draw, what=what, share=share, describe=True)
            compared, _carried = self._ask(comparison, [memory])
        finally:
            os.close(memory)
        if not isinstance(compared, Compared):
            raise self._failure(compared)
        return compared

    def _ask(self, order: Order, carried: list[int] | None = None) -> tuple[FromReferee, list[int]]:
        answer = self._child.ask(order, self._check_s, carried or [])
        if isinstance(answer, ChildFailure):
            raise self._failure(answer)
        return answer
