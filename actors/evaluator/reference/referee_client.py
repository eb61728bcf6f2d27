"""The judge's client of a task's referee, which draws inputs, computes outputs and compares.

The referee runs the task's own code, which is trusted; the bytes that it compares are written by a
candidate.  If the referee gives no good answer, that is no candidate's verdict: `failure` makes the
error.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from actors.evaluator.ipc import shared_memory
from actors.evaluator.ipc.layout_checks import (
    Layout,
    Nest,
    difference,
    total_bytes,
)
from actors.evaluator.ipc.orders import CandidateRaised, InputKind, Order
from actors.evaluator.ipc.referee_orders import (
    AwaitIdleCard,
    CompareBytes,
    Compared,
    CompareState,
    ComputeExpected,
    DescribeTask,
    DrawDependent,
    DrawFromSlot,
    DrawInputs,
    ExpectedLayout,
    FillSlots,
    ForgetDraws,
    FreshBuffers,
    FromReferee,
    InputsDrawn,
    LendMemory,
    OutputMemory,
    PrepareArena,
    PrepareReplacement,
    PrepareSlots,
    ReleaseTimingMemory,
    RepeatBlock,
    ReplaceContents,
    RestoreContents,
    RestoreParameters,
    ShareState,
    SlotDrawn,
    SlotsPrepared,
    StashFromArena,
    StashOutputs,
    TaskDescribed,
)
from actors.evaluator.ipc.runner_orders import (
    CallReturned,
    FromRunner,
    SetInputs,
    StateWritten,
    WriteState,
    WriteTensors,
)
from actors.evaluator.reference.call_start import CallStart
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
        self._starts: dict[int, CallStart] = {}  # of the call on each draw

    def fresh_buffers(self) -> list[int]:
        """Return init inputs and parameters in memory that no candidate has had."""
        return self._ask(FreshBuffers())[1]

    def share_state(self, names: tuple[str, ...], seed: int | None = None) -> int:
        """Return memory with these tensors of the state; the caller closes it.

        `seed`: blocks begin at other values of it from now on.
        """
        return self._ask(ShareState(names=names, seed=seed))[1][0]

    def restore_parameters(self, names: tuple[str, ...], *, has_changed: bool) -> None:
        """Give the reference these parameters as they were constructed, for one candidate.

        `has_changed`: calls of it have changed its state.
        """
        if has_changed or names != self._restored:
            self._ask(RestoreParameters(names=names))
            self._restored = names

    def describe_task(self) -> TaskDescribed | None:
        """Return what is known of the task; None where the referee can't find out."""
        described, _carried = self._ask(DescribeTask(seed=secrets.randbits(62)))
        return described if isinstance(described, TaskDescribed) else None

    def draw(self, kind: InputKind = "plain") -> DrawnInputs:
        """Draw fresh inputs with a fresh secret seed; the caller closes the buffer."""
        seed = secrets.randbits(62)
        drawn, carried = self._ask(DrawInputs(seed=secrets.randbits(62), kind=kind))
        if not isinstance(drawn, InputsDrawn):
            raise self._failure(drawn)
        self._starts[drawn.draw] = CallStart(seed=seed)
        return DrawnInputs(number=drawn.draw, inputs=drawn.inputs, buffer=carried[0], seed=seed)

    def expected_layout(self, draw: int) -> Layout:
        """Return the layout of a draw's outputs, which are computed now if they were not before."""
        start = self._starts[draw]
        order = ComputeExpected(
            draw=draw, seed=start.seed, calls_before=start.calls_before, state=start.state
        )
        expected, _carried = self._ask(order)
        if not isinstance(expected, ExpectedLayout):
            raise self._failure(expected)
        return expected.outputs

    # --- timed blocks ------------------------------------------------------------------------

    def prepare_slots(self, count: int, program: bytes) -> tuple[SlotsPrepared, int]:
        """Allocate input slots; the caller closes them.  `program`: of earlier ones, or empty."""
        prepared, carried = self._ask(PrepareSlots(count=count, program=program))
        if not isinstance(prepared, SlotsPrepared):
            raise self._failure(prepared)
        return prepared, carried[0]

    def fill_slots(self, count: int) -> None:
        """Write fresh inputs into the first `count` slots."""
        self._ask(FillSlots(seed=secrets.randbits(48), count=count))

    def prepare_replacement(self, slot: int, kind: InputKind = "plain") -> None:
        """Have other contents made for a slot."""
        self._ask(PrepareReplacement(slot=slot, seed=secrets.randbits(48), kind=kind))

    def replace_contents(self) -> None:
        """Write these contents, while a side may be running."""
        self._ask(ReplaceContents())

    def restore_contents(self) -> None:
        """Write what was in these slots before; the side is frozen."""
        self._ask(RestoreContents())

    def draw_from_slot(
        self, slot: int, block_seed: int | None = None, state: tuple[str, ...] = ()
    ) -> SlotDrawn:
        """Make a draw of what was written into a slot.

        `block_seed`: where the random numbers of the calls on the slots before it begin; `state`:
        what was given before these calls and decides outputs.
        """
        drawn, _carried = self._ask(DrawFromSlot(slot=slot))
        if not isinstance(drawn, SlotDrawn):
            raise self._failure(drawn)
        start = CallStart(seed=secrets.randbits(62))
        if block_seed is not None:
            start = CallStart(seed=block_seed, calls_before=slot, state=state)
        self._starts[drawn.draw] = start
        return drawn

    def draw_dependent(self, link: DrawDependent, seed: int | None) -> int:
        """Make a draw of a slot as an output decides it; return its number.

        `seed`: of the call.
        """
        drawn, _carried = self._ask(link)
        if not isinstance(drawn, SlotDrawn):
            raise self._failure(drawn)
        seed = secrets.randbits(62) if seed is None else seed
        self._starts[drawn.draw] = CallStart(seed=seed)
        return drawn.draw

    def prepare_arena(self, size: int) -> int:
        """Allocate an arena; the caller closes the descriptor of its memory."""
        return self._ask(PrepareArena(size=size))[1][0]

    def stash_from_arena(
        self, outputs: Sequence[Layout], places: Sequence[Sequence[tuple[OutputMemory, int]]]
    ) -> None:
        """Copy outputs out of the arena or the slots."""
        begins = tuple(map(tuple, places))
        self._ask(StashFromArena(outputs=tuple(outputs), places=begins))

    def await_idle_card(self) -> None:
        """Wait for round trips to the card, which wait for work of other processes."""
        self._ask(AwaitIdleCard())

    def release_timing_memory(self) -> None:
        """Free slots and arenas."""
        self._ask(ReleaseTimingMemory())

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
    ) -> None:
        """Copy parts out of memory that a candidate may still write to.

        `strided`: the layout of each part, if its bytes are in the order of its strides instead of
        in logical order.
        """
        self._ask(StashOutputs(parts=tuple(parts), size=size, strided=strided), [memory])

    def compare_stashed(
        self, number: int, output: Layout, draw: int, *, only_own: bool = False
    ) -> str:
        """Compare one of the copied outputs; return what is wrong with it.

        `only_own`: leave out what the task returns in an input's memory.
        """
        differs = difference(self.expected_layout(draw), output)
        if differs:
            return differs
        order = CompareBytes(draw=draw, what="output", stashed=number, only_own=only_own)
        compared = self.compared(order)
        return "" if compared.reason and self._is_unsteady(draw, compared) else compared.reason

    def compare_left_inputs(self, slot: int, draw: int) -> str:
        """Compare what a block has left of a slot's inputs; return what is wrong with it."""
        compared = self.compared(CompareBytes(draw=draw, what="inputs", slot=slot))
        return "" if compared.reason and self._is_unsteady(draw, compared) else compared.reason

    def _is_unsteady(self, draw: int, compared: Compared) -> bool:
        """Whether last digits of the state before a block change as much of a call's output."""
        start = self._starts[draw]
        order = RepeatBlock(names=start.state, calls=start.calls_before, seed=start.seed, draw=draw)
        return bool(start.state) and compared.is_excused_by(self._control(order))

    def _control(self, order: RepeatBlock) -> Compared:
        return self.compared(replace(order, is_control=True))

    def compared(self, order: Order, carried: list[int] | None = None) -> Compared:
        """Have the referee compare something."""
        compared, _carried = self._ask(order, carried)
        if not isinstance(compared, Compared):
            raise self._failure(compared)
        return compared

    def forget(self, draw: int, count: int = 1) -> None:
        """Have the referee free the memory of draws."""
        for number in range(draw, draw + count):
            self._starts.pop(number, None)
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
        only_own: bool = False,
    ) -> Compared | CandidateFault:
        """Compare an output that the candidate holds with what is expected of `draw`.

        A wrong one is described.  `only_own`: leave out what the task returns in an input's memory.
        """
        expected = self.expected_layout(draw)
        differs = difference(expected, called.output)
        if differs:
            return Compared(reason=differs)
        order = WriteTensors(what="output", number=number)
        comparison = CompareBytes(
            draw=draw, what="output", share=share, describe=True, only_own=only_own
        )
        return self._compare(candidate, order, expected, comparison, stage)

    def compare_inputs(
        self, candidate: ChildClient[FromRunner], slot: int, drawn: DrawnInputs
    ) -> Compared | CandidateFault:
        """Compare a slot's inputs, after the call, with what the reference leaves of them."""
        order = WriteTensors(what="inputs", number=slot)
        comparison = CompareBytes(draw=drawn.number, what="inputs", describe=True)
        return self._compare(candidate, order, drawn.inputs, comparison, "check")

    def compare_state(
        self, candidate: ChildClient[FromRunner], expected: Nest, calls: int
    ) -> Compared | CandidateFault:
        """Compare what calls change in the candidate's state with what they change in the task's.

        Both have made the same calls, so many.
        """
        size = total_bytes(expected)
        memory = self.lend_memory(size)
        try:
            order = WriteState(names=expected.keys, limit=size)
            answer = candidate.ask(order, self._check_s, [memory])
            if isinstance(answer, ChildFailure) or not isinstance(answer[0], StateWritten):
                return fault_from_child(answer, "check", candidate.output.text())
            written = answer[0].state
            lacking = set(expected.keys) - set(written.keys if isinstance(written, Nest) else ())
            if lacking:
                first = next(name for name in expected.keys if name in lacking)
                return Compared(
                    reason=f"ModelNew has no buffer or attribute {first}, which calls change"
                )
            differs = difference(expected, written, "state")
            if differs:
                return Compared(reason=differs)
            compared = CompareState(names=expected.keys, calls=calls, is_block=False)
            return self.compared(compared, [memory])
        finally:
            os.close(memory)

    def compare_changes(
        self, names: tuple[str, ...], after: int, calls: int, seed: int | None
    ) -> Compared:
        """Compare a state with what the calls of the last block make of the state before it.

        Where other last digits of that make another state of it, too, nothing is wrong.
        """
        order = RepeatBlock(names=names, calls=calls, seed=seed)
        self._ask(order)
        state = CompareState(names=names, calls=calls, is_block=True)
        found = self.compared(state, [after])
        if not found.reason:
            return found
        return Compared() if self._control(order).reason else found

    def _compare(
        self,
        candidate: ChildClient[FromRunner],
        order: WriteTensors,
        layout: Layout,
        comparison: CompareBytes,
        stage: Stage,
    ) -> Compared | CandidateFault:
        size = total_bytes(layout)
        memory = self.lend_memory(size)
        try:
            written = WriteTensors(what=order.what, number=order.number, limit=size)
            answer = candidate.ask(written, self._check_s, [memory])
            if isinstance(answer, ChildFailure) or isinstance(answer[0], CandidateRaised):
                return fault_from_child(answer, stage, candidate.output.text())
            return self.compared(comparison, [memory])
        finally:
            os.close(memory)

    def _ask(self, order: Order, carried: list[int] | None = None) -> tuple[FromReferee, list[int]]:
        answer = self._child.ask(order, self._check_s, carried or [])
        if isinstance(answer, ChildFailure):
            raise self._failure(answer)
        return answer
