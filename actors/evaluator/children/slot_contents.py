"""Fresh contents of input slots: two draws of the task, mixed element by element by a random mask.

Drawing the inputs of hundreds of calls takes seconds where `get_inputs` draws on the host; mixing
takes as long as copying.  What holds for the element at one place of every draw holds for the mix.
Factors make floating values differ from those of all other slots (`slot_scaling`).
What is a property of many elements (sorted, distinct, rows that add up to one) may not.  A task
with such a tensor, or which does not work on the mix, has a draw of its own in each slot: of two
draws a candidate could remember all that it computes from the tensor.  So it is with values that
no factor makes different (tokens).  Trusted; runs in the referee.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from actors.evaluator.children import slot_scaling
from actors.evaluator.children.mixed_tensor import MixedTensor, item_bytes
from actors.evaluator.children.task_errors import UnsuitableTaskError
from actors.evaluator.children.tensors import tensor_bytes
from actors.evaluator.children.tensors.input_slots import SlotMemory
from actors.evaluator.children.tensors.tensor_copies import has_same_bytes
from actors.evaluator.children.tensors.tensor_properties import properties_of
from actors.evaluator.ipc.layout_checks import (
    SLOT_ALIGNMENT,
    Layout,
    Leaf,
    offsets,
    tensor_leaves,
    total_bytes,
)
from actors.evaluator.ipc.orders import InputKind

Draw = Callable[..., list[object]]  # the task's inputs for a seed, and a kind of draw

MAX_DRAWS = 20  # until a draw has the layout of the slots
# With more bytes of inputs a block has few calls, and draws that are this fast need no mixing: a
# card draws faster, a host slower.  Of less a block has many, and 12 GiB of draws take 25 ms on an
# H200, as long as five blocks, where mixing takes 5 ms.
LARGE_BYTES, LARGE_DRAW_BYTES_PER_S = 1 << 30, 5e10
CHEAP_DRAW_S = 0.02  # a draw that takes no longer replaces one of the two before each block


class SlotContents:
    """What is in the slots of one task's timed blocks."""

    def __init__(self, layout: Layout, draw: Draw) -> None:
        """`layout`: of the inputs in each slot."""
        self.layout = layout
        self._draw = draw
        self.draw_s = 0.0  # of the last draw
        self.is_mixing = False
        self._tensors: list[MixedTensor] = []
        self._draws: list[list[torch.Tensor]] = []  # the bytes of each tensor, of two draws
        self._seed = 0  # of the draws in the slots, where each has its own
        self._oldest = 0
        self._new: dict[int, list[torch.Tensor]] = {}  # new contents, by slot
        self._replaced: dict[int, Callable[[], list[torch.Tensor]]] = {}  # the same, made again
        self._kinds: dict[int, InputKind] = {}  # of these

    def try_mixing(self, seed: int, works_on: Callable[[list[object]], bool]) -> bool:
        """Find out which tensors can be mixed, and whether the task works on the mix."""
        first = self._flat_draw(seed)
        if self._is_drawn_fast():
            return False
        second = self._flat_draw(seed + MAX_DRAWS)
        if self._is_drawn_fast():  # the first may have waited for memory
            return False
        leaves = [leaf for leaf in tensor_leaves(self.layout)]
        begins = offsets(self.layout, SLOT_ALIGNMENT)
        self._tensors = []
        for leaf, begin, one, other in zip(leaves, begins, first, second, strict=False):
            is_mixed = bool(leaf.nbytes) and not torch.equal(one, other)
            if is_mixed and not _can_mix(leaf, one, other):
                return False
            tensor = MixedTensor(leaf, begin, is_mixed=is_mixed)
            if is_mixed:
                tensor.centre = slot_scaling.centre_of(leaf, (one, other))
            self._tensors.append(tensor)
        self.is_mixing = not self._has_values_again() and works_on(
            self.values(self._tried(first, second))
        )
        return self.is_mixing

    def _is_drawn_fast(self) -> bool:
        """Whether the last draw was so large and fast that slots need no mixing."""
        size = total_bytes(self.layout)
        return size > LARGE_BYTES and self.draw_s < size / LARGE_DRAW_BYTES_PER_S

    def _has_values_again(self) -> bool:
        """Whether calls would share values of which a candidate could keep what it computes.

        Values without a factor are those of two draws: tokens, for example.  Beside others that
        have one they are accepted where draws are slow.
        """
        tensors = self._tensors
        return (
            not any(each.is_scaled for each in tensors)
            or any(each.has_few_mixes for each in tensors)
            or (self.draw_s <= CHEAP_DRAW_S and any(each.has_values_again for each in tensors))
        )

    def _tried(self, first: list[torch.Tensor], second: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return what a slot may hold, as bytes."""
        tried = []
        for tensor, one, other in zip(self._tensors, first, second, strict=True):
            raw = _half_of_each(one, other, tensor.leaf) if tensor.is_mixed else one
            if tensor.is_scaled:
                tensor.scale_anew(raw)
            tried.append(raw)
        return tried

    def prepare(self, seed: int) -> None:
        """Hold what the slots are filled with."""
        if self.is_mixing and not self._draws:
            self._draws = [self._flat_draw(seed), self._flat_draw(seed + MAX_DRAWS)]
        elif not self.is_mixing:
            self._flat_draw(seed)  # to know how long it takes

    def release(self) -> None:
        """Free the memory of the draws."""
        self._draws = []
        for tensor in self._tensors:
            tensor.release()

    def fill(self, memory: SlotMemory, count: int, seed: int) -> None:
        """Write fresh inputs into the first `count` slots."""
        self._seed, self._new, self._replaced = seed, {}, {}
        if not self.is_mixing:
            for slot in range(count):
                memory.write(slot, self._flat_draw(self._seed + slot * MAX_DRAWS))
            return
        if self.draw_s <= CHEAP_DRAW_S:
            self._draws[self._oldest] = self._flat_draw(seed)
            self._oldest = 1 - self._oldest
        for number, tensor in enumerate(self._tensors):
            if tensor.leaf.nbytes:
                pair = self._draws[0][number], self._draws[1][number]
                tensor.write(memory, count, pair, seed + number)

    def prepare_replacement(self, slot: int, seed: int, kind: InputKind = "plain") -> None:
        """Make other contents for a slot that was filled.

        A draw of another kind is left out if it has not the layout of the slots.
        """
        drawn = self._new_draw(seed, kind)
        if drawn is None:
            return
        self._new[slot], self._kinds[slot] = drawn, kind
        if self.is_mixing:  # it may draw something else the next time
            self._replaced[slot] = lambda: [each.clone() for each in drawn]
        else:  # slots are drawn again as well, and gigabytes are not kept
            self._replaced[slot] = lambda: self._new_draw(seed, kind) or []

    def _new_draw(self, seed: int, kind: InputKind) -> list[torch.Tensor] | None:
        """Return the bytes of each tensor; None if a draw of this kind has another layout."""
        if kind != "plain":
            drawn = self._draw(seed, kind)
            if tensor_bytes.layout_of(drawn) != self.layout:
                return None
            return [tensor_bytes.flat_bytes(each) for each in tensor_bytes.tensors_in(drawn)]
        if not self.is_mixing:
            return self._flat_draw(seed)
        leaves = tensor_leaves(self.layout)
        return [
            _half_of_each(one, other, leaf) if tensor.is_mixed else one
            for tensor, leaf, one, other in zip(self._tensors, leaves, *self._draws, strict=True)
        ]

    def replace(self, memory: SlotMemory) -> None:
        """Write the contents that were prepared into their slots; they take no memory any more."""
        while self._new:
            memory.write(*self._new.popitem())

    def restore(self, memory: SlotMemory) -> None:
        """Write what these slots held before, which is what they are compared with from now on."""
        slots, self._new, self._replaced = list(self._replaced), {}, {}
        for slot in slots:
            memory.write(slot, self.written(slot))

    def changes(
        self, memory: SlotMemory, slot: int, raws: Sequence[torch.Tensor]
    ) -> tuple[bool, ...]:
        """Return for each tensor of a slot whether it holds something else than `raws`.

        `raws`: what `written` returned.  Large tensors are compared in pieces.
        """
        places = [slot * memory.stride + each for each in offsets(self.layout, SLOT_ALIGNMENT)]
        return tuple(
            not has_same_bytes(
                memory.bytes[place : place + raw.numel()], raw.to(memory.bytes.device)
            )
            for place, raw in zip(places, raws, strict=False)
        )

    def kind_of(self, slot: int) -> InputKind:
        """Return of which kind of draw a slot's contents are."""
        return self._kinds[slot] if slot in self._replaced else "plain"

    def written(self, slot: int) -> list[torch.Tensor]:
        """Return a copy of the bytes that were last written into a slot, tensor by tensor."""
        if slot in self._replaced:
            return self._replaced[slot]()
        if not self.is_mixing:
            return self._flat_draw(self._seed + slot * MAX_DRAWS)
        return [
            tensor.contents(slot, (self._draws[0][number], self._draws[1][number]))
            if tensor.leaf.nbytes
            else torch.empty(0, dtype=torch.uint8)
            for number, tensor in enumerate(self._tensors)
        ]

    def values(self, raws: list[torch.Tensor]) -> list[object]:
        """Return a slot's inputs, of their bytes."""
        parts = iter(raws)

        def tensor(leaf: Leaf) -> torch.Tensor:
            raw = next(parts)
            return tensor_bytes.strided_view(leaf, raw) if leaf.nbytes else _nothing(leaf, raws)

        return tensor_bytes.assemble(self.layout, tensor)  # type: ignore[return-value]  # a list

    def _flat_draw(self, seed: int) -> list[torch.Tensor]:
        """Return the bytes of each tensor of a draw with the layout of the slots."""
        for number in range(MAX_DRAWS):
            began = time.monotonic()
            drawn = self._draw(seed + number)
            flat = [tensor_bytes.flat_bytes(each) for each in tensor_bytes.tensors_in(drawn)]
            if flat and flat[0].is_cuda:
                torch.cuda.synchronize()
            self.draw_s = time.monotonic() - began
            if tensor_bytes.layout_of(drawn) == self.layout:
                return flat
        raise UnsuitableTaskError(
            "get_inputs() returns other shapes or numbers each time: timed calls need the same"
        )


def _nothing(leaf: Leaf, raws: list[torch.Tensor]) -> torch.Tensor:
    return tensor_bytes.empty_tensor(leaf, raws[0].device)


def _can_mix(leaf: Leaf, first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether the mix of two draws has every property that both have."""
    ours, theirs, mixed = (
        properties_of(tensor_bytes.strided_view(leaf, raw))
        for raw in (first, second, _half_of_each(first, second, leaf))
    )
    return ours & theirs <= mixed


def _half_of_each(first: torch.Tensor, second: torch.Tensor, leaf: Leaf) -> torch.Tensor:
    """Return the bytes of a mix of two tensors."""
    item = item_bytes(leaf)
    ours = torch.randint(0, 2, (len(first) // item, 1), dtype=torch.bool, device=first.device)
    return torch.where(ours, first.view(-1, item), second.view(-1, item)).view(-1)
