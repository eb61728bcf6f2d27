"""Fresh contents of input slots: two draws of the task, mixed element by element by a random mask.

Drawing the inputs of hundreds of calls takes seconds where `get_inputs` draws on the host; mixing
takes as long as copying.  What holds for the element at one place of every draw holds for the mix.
A factor for each slot makes floating values differ from those of all others (`slot_scaling`).
What is a property of many elements (sorted, distinct, rows that add up to one) may not.  A task
with such a tensor, or which does not work on the mix, has a draw of its own in each slot: of two
draws a candidate could remember all that it computes from the tensor.  So it is with values that
no factor makes different (tokens).  Trusted; runs in the referee.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence

import torch

from actors.evaluator.children import slot_scaling
from actors.evaluator.children.task_errors import UnsuitableTaskError
from actors.evaluator.children.tensors import mixing_kernel, tensor_bytes
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
FEW_ELEMENTS = 16  # there are two to this power mixes of so many, more than calls of a timing
MASK_OFFSETS = 1 << 16  # masks of slots are windows of one random mask
# The last elements that are written, in each slot: nothing computed from earlier contents is right.
LAST_SHARE, MIN_LAST, MAX_LAST = 256, 64, 1 << 16
# Elements are chosen together, a word at a time, where a tensor has many: then slots are written at
# the speed of a copy.
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
MIN_WORDS = 1 << 12
# On a host slots are written in pieces: so many bytes in all slots together, in each at least so
# many.  On a card, where 12 GiB take 20 ms, pieces of 24 MB made that 52 ms.
PIECE_BYTES, MIN_PIECE_BYTES = 1 << 21, 1 << 14


class MixedTensor:
    """One tensor of the inputs: its bytes in two draws, and how they were mixed last."""

    def __init__(self, leaf: Leaf, begin: int, *, is_mixed: bool) -> None:
        """`begin`: where its bytes begin in a slot; `is_mixed`: else all draws of it are equal."""
        self.leaf = leaf
        self.begin = begin
        self.is_mixed = is_mixed
        self.is_scaled = False  # each slot's values have a factor
        self._factors: torch.Tensor | None = None
        self._word = _word_bytes(leaf) if leaf.nbytes else 1
        self._mask = torch.empty(0, dtype=torch.bool)
        self._chosen = self._mask  # slots × words: whether the first draw's word counts
        self._last: torch.Tensor | None = None  # slots × places whose choice is turned around

    def release(self) -> None:
        """Free the memory of the mask."""
        self._mask = self._chosen = torch.empty(0, dtype=torch.bool)

    def _words(self, raw: torch.Tensor) -> torch.Tensor:
        if raw.storage_offset() % self._word:  # a part of a larger tensor
            raw = raw.clone()
        return raw.view(WORDS[self._word])

    def write(
        self,
        memory: SlotMemory,
        count: int,
        draws: tuple[torch.Tensor, torch.Tensor],
        seed: int,
    ) -> None:
        """Write fresh contents into this tensor of `count` slots."""
        first, second = map(self._words, draws)
        region = self._words(memory.bytes)
        item = first.element_size()
        places = region.as_strided(
            (count, len(first)), (memory.stride // item, 1), self.begin // item
        )
        rng = random.Random(seed)  # noqa: S311  # the seed is the secret
        self._choose(count, len(first), rng, first.device)
        if places.device != first.device:  # a card that shares no memory
            places.copy_(self._scaled(torch.where(self._chosen, first, second), self._factors))
            self._last = None
            return
        if not mixing_kernel.mix(places, (first, second), self._chosen, self._factors):
            self._mix_in_pieces(places, first, second)
        if self._last is not None:
            turned = self._turned(self._last, self._chosen, first, second)
            places.scatter_(1, self._last, self._scaled(turned, self._factors))

    def _mix_in_pieces(
        self, places: torch.Tensor, first: torch.Tensor, second: torch.Tensor
    ) -> None:
        """Mix into all slots, piece by piece: what is mixed is in the cache when it is scaled."""
        piece_bytes = PIECE_BYTES // len(places)
        pieces = 1
        if piece_bytes >= MIN_PIECE_BYTES and not places.is_cuda:
            pieces = -(-len(first) * first.element_size() // piece_bytes)
        chosen = self._chosen.expand(places.shape)
        for is_first, one, other, place in zip(
            chosen.tensor_split(pieces, 1),
            first.tensor_split(pieces),
            second.tensor_split(pieces),
            places.tensor_split(pieces, 1),
            strict=True,
        ):
            torch.where(is_first, one, other, out=place)
            self._scaled(place, self._factors)

    def _scaled(self, words: torch.Tensor, factors: torch.Tensor | None) -> torch.Tensor:
        """Multiply the values in their memory; return the words."""
        if factors is not None:
            slot_scaling.as_values(self.leaf, words).mul_(factors)
        return words

    def _choose(self, count: int, length: int, rng: random.Random, device: torch.device) -> None:
        self._last = None
        if self.is_scaled:
            self._factors = slot_scaling.factors(self.leaf, count, rng, device)
        if not self.is_mixed:
            rows = [[rng.random() < 0.5] for _slot in range(count)]
            self._chosen = torch.tensor(rows, device=device)
            return
        if len(self._mask) != length + MASK_OFFSETS:
            self._mask = torch.randint(
                0, 2, (length + MASK_OFFSETS,), dtype=torch.bool, device=device
            )
        step = rng.randrange(1, max(2, MASK_OFFSETS // (2 * count)))
        begin = rng.randrange(MASK_OFFSETS // 2 - 1)
        self._chosen = self._mask.as_strided((count, length), (step, 1), begin)
        if device.type == "cuda":
            last = min(max(length // LAST_SHARE, MIN_LAST), MAX_LAST)
            self._last = torch.randint(0, length, (count, last), device=device)

    def _turned(
        self,
        places: torch.Tensor,
        chosen: torch.Tensor,
        first: torch.Tensor,
        second: torch.Tensor,
    ) -> torch.Tensor:
        return torch.where(chosen.gather(-1, places), second[places], first[places])

    def contents(self, slot: int, draws: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Return the bytes that were last written into a slot, from what decided them."""
        first, second = map(self._words, draws)
        mixed = torch.where(self._chosen[slot], first, second)
        if self._last is not None:
            last = self._last[slot]
            mixed[last] = self._turned(last, self._chosen[slot], first, second)
        factor = None if self._factors is None else self._factors[slot]
        return self._scaled(mixed, factor).view(torch.uint8)


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
            tensor.is_scaled = is_mixed and slot_scaling.can_scale(leaf, (one, other))
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
        have one they are accepted where draws are slow, unless they are so few that calls share
        whole tensors.
        """
        again = [each for each in self._tensors if each.is_mixed and not each.is_scaled]
        return (
            not any(each.is_scaled for each in self._tensors)
            or any(math.prod(each.leaf.shape) < FEW_ELEMENTS for each in again)
            or bool(again and self.draw_s <= CHEAP_DRAW_S)
        )

    def _tried(self, first: list[torch.Tensor], second: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return what a slot may hold, as bytes."""
        tried = []
        for tensor, one, other in zip(self._tensors, first, second, strict=True):
            raw = _half_of_each(one, other, tensor.leaf) if tensor.is_mixed else one
            if tensor.is_scaled:
                slot_scaling.as_values(tensor.leaf, raw).mul_(1 - slot_scaling.MOST)
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
        self._new[slot] = drawn
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
    item = _item_bytes(leaf)
    ours = torch.randint(0, 2, (len(first) // item, 1), dtype=torch.bool, device=first.device)
    return torch.where(ours, first.view(-1, item), second.view(-1, item)).view(-1)


def _item_bytes(leaf: Leaf) -> int:
    return leaf.nbytes // math.prod(leaf.shape)


def _word_bytes(leaf: Leaf) -> int:
    """Return the bytes of the words in which a tensor is mixed."""
    item = _item_bytes(leaf)
    sizes = (size for size in sorted(WORDS, reverse=True) if not leaf.nbytes % size)
    return next((size for size in sizes if size > item and leaf.nbytes // size > MIN_WORDS), item)
