"""The memory of timed blocks in the referee: input slots, and the arena with a side's outputs."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

import torch

from actors.evaluator.children import decision_kernel, dependent_inputs
from actors.evaluator.children.slot_contents import SlotContents
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors import cuda_vmm, tensor_bytes
from actors.evaluator.children.tensors.input_slots import SlotMemory
from actors.evaluator.ipc.layout_checks import (
    Layout,
    offsets,
    slot_bytes,
    tensor_leaves,
    total_bytes,
)
from actors.evaluator.ipc.orders import Done, InputKind
from actors.evaluator.ipc.referee_orders import (
    DrawDependent,
    FillSlots,
    InputKindResult,
    OutputMemory,
    PrepareArena,
    PrepareReplacement,
    PrepareSlots,
    SlotsPrepared,
)

IDLE_ROUND_TRIPS = 4  # each waits for a time slice where another process has work on the card
LARGE_BYTES = 1 << 28  # draws of larger inputs are not kept from one candidate to the next


class TimingMemory:
    """Slots and arenas of one task, made anew for each candidate."""

    def __init__(self, task: TaskModule, inputs: Layout, allocate: Callable[[int], int]) -> None:
        """`allocate` returns the descriptor of memory that other processes can map."""
        self._task = task
        self._inputs = inputs
        self._allocate = allocate
        self.contents = SlotContents(inputs, task.inputs)
        self._slots: SlotMemory | None = None
        self._arena: cuda_vmm.Mapping | None = None
        self._tick: torch.Tensor | None = None
        self._program = b""  # decides inputs on a card

    def try_mixing(self, seed: int) -> InputKindResult:
        """Find out whether slots can be filled with mixed draws."""
        accepted = self.contents.try_mixing(seed, lambda mix: self._task.runs_on(mix, seed))
        return InputKindResult(accepted=accepted)

    # --- slots -------------------------------------------------------------------------------

    def prepare_slots(self, order: PrepareSlots) -> tuple[SlotsPrepared, list[int]]:
        """Allocate slots, in memory that no candidate has had."""
        self._close_slots()
        self.contents.prepare(secrets.randbits(62))
        descriptor = self._allocate(order.count * slot_bytes(self._inputs))
        self._slots = SlotMemory(descriptor, self._inputs, order.count)
        if self._slots.is_on_card:  # compiling takes some tenths of a second
            self._program = order.program or decision_kernel.program()
        draw_s = 0.0 if self.contents.is_mixing else self.contents.draw_s
        return SlotsPrepared(draw_s=draw_s, program=self._program), [descriptor]

    @property
    def slots(self) -> SlotMemory:
        """The slots that were prepared."""
        if self._slots is None:
            raise RuntimeError("no slots are prepared")
        return self._slots

    def fill(self, order: FillSlots) -> None:
        """Write fresh inputs; at its end the card has done all of it."""
        # One thread: idle OpenMP threads would spin for a while, in the next timed window.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            self.contents.fill(self.slots, order.count, order.seed)
        finally:
            torch.set_num_threads(threads)
        if self.slots.is_on_card:
            cuda_vmm.reset_persisting_l2()
            torch.cuda.synchronize()

    def prepare_replacement(self, order: PrepareReplacement) -> None:
        """Make other contents for a slot."""
        self.contents.prepare_replacement(order.slot, order.seed, order.kind)

    def replace_contents(self) -> None:
        """Write them; at its end the card has done it."""
        self.contents.replace(self.slots)
        if self.slots.is_on_card:
            torch.cuda.synchronize()

    def restore_contents(self) -> None:
        """Write what was in these slots before; at its end the card has done it."""
        self.contents.restore(self.slots)
        if self.slots.is_on_card:
            torch.cuda.synchronize()

    def drawn_from(self, slot: int) -> tuple[list[object], InputKind, tuple[bool, ...]]:
        """Return a copy of what was written into a slot, and which tensors hold something else.

        Between them: the kind of the draw.
        """
        raws, kind = self.contents.written(slot), self.contents.kind_of(slot)
        return self.contents.values(raws), kind, self.contents.changes(self.slots, slot, raws)

    def dependent_draw(self, order: DrawDependent, before: object) -> list[object]:
        """Return a copy of a slot's inputs as the output `before` decides them."""
        draws = self.contents.written(order.slot), self.contents.written(order.other)
        raws = dependent_inputs.chosen(
            self._inputs, draws, before, self._program, is_whole=order.is_whole
        )
        return self.contents.values(raws)

    def inputs_of(self, slot: int) -> list[object]:
        """Return a copy of what was written into a slot."""
        return self.contents.values(self.contents.written(slot))

    # --- outputs on a card -------------------------------------------------------------------

    def prepare_arena(self, order: PrepareArena) -> tuple[Done, list[int]]:
        """Allocate an arena, and map it to read outputs there."""
        self._close_arena()
        descriptor = self._allocate(order.size)
        self._arena = cuda_vmm.Mapping(descriptor, order.size)
        return Done(), [descriptor]

    def output(self, layout: Layout, places: Sequence[tuple[OutputMemory, int]]) -> torch.Tensor:
        """Return a copy of an output's bytes in logical order.

        The judge has checked that each leaf lies in the arena or the slots.
        """
        if self._arena is None:
            raise RuntimeError("there is no arena to read from")
        held = {"arena": self._arena.bytes, "slots": self.slots.bytes}
        copied = torch.empty(total_bytes(layout), dtype=torch.uint8, device="cuda")
        leaves = zip(tensor_leaves(layout), offsets(layout), places, strict=False)
        for leaf, begin, (memory, place) in leaves:
            if leaf.nbytes:
                copied[begin : begin + leaf.nbytes] = held[memory][place : place + leaf.nbytes]
        return tensor_bytes.in_logical_order(copied, layout)

    def await_idle_card(self) -> None:
        """Make a few round trips to the card: they wait for work of other processes.

        A context that has work left gets the card for a time slice of its own (2 ms on an H100)
        between two of them.
        """
        if self._tick is None:
            self._tick = torch.zeros(1, device="cuda")
        for _trip in range(IDLE_ROUND_TRIPS):
            self._tick.zero_()
            torch.cuda.synchronize()

    # --- the end -----------------------------------------------------------------------------

    def release(self) -> None:
        """Free slots and arena; small draws are kept for the next candidate."""
        self._close_slots()
        self._close_arena()
        if slot_bytes(self._inputs) > LARGE_BYTES:
            self.contents.release()
        if self._tick is not None:
            torch.cuda.empty_cache()

    def _close_slots(self) -> None:
        if self._slots is not None:
            self._slots.close()
            self._slots = None

    def _close_arena(self) -> None:
        if self._arena is not None:
            self._arena.close()
            self._arena = None
