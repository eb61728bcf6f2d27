"""One input tensor of all slots: two draws, mixed word by word by a random mask, times factors.

Trusted; runs in the referee.
"""

from __future__ import annotations

import math
import random

import torch

from actors.evaluator.children import slot_scaling
from actors.evaluator.children.tensors import mixing_kernel
from actors.evaluator.children.tensors.input_slots import SlotMemory
from actors.evaluator.ipc.layout_checks import Leaf

OFFSETS = 1 << 16  # masks and factors of slots are windows of one random mask, and of one more
# The last elements that are written, in each slot: nothing computed from earlier contents is right.
LAST_SHARE, MIN_LAST, MAX_LAST = 256, 64, 1 << 16
# Elements are chosen together, a word at a time, where a tensor has many: then slots are written at
# the speed of a copy.
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
MIN_WORDS = 1 << 12
# There are two to this power mixes of so many elements, more than calls of a timing.  A row has as
# many words, where it has as many elements: of fewer a candidate could keep what it computes from
# each mix.
FEW_ELEMENTS = 16
IMAGE_DIMENSIONS = 4  # and more
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
        self.centre: float | None = None  # to which factors bring values nearer; None: no factors
        self._factors: torch.Tensor | None = None  # slots × words
        self._all_factors = torch.empty(0)
        self._word = _word_bytes(leaf) if leaf.nbytes else 1
        self._mask = torch.empty(0, dtype=torch.bool)
        self._chosen = self._mask  # slots × words: whether the first draw's word counts
        self._last: torch.Tensor | None = None  # slots × places whose choice is turned around

    @property
    def has_few_mixes(self) -> bool:
        """Whether calls would share rows, or the whole tensor, but for factors.

        What a factor changes could be interpolated, and in halves it is within rounding.
        """
        is_small = math.prod(self.leaf.shape) < FEW_ELEMENTS
        is_short = is_small or 1 < row_length(self.leaf) < FEW_ELEMENTS
        return self.is_mixed and is_short

    @property
    def has_values_again(self) -> bool:
        """Whether a function of single elements could be kept from slot to slot.

        Of one byte it is a table of 256 values, which is honest.
        """
        return self.is_mixed and not self.is_scaled and item_bytes(self.leaf) > 1

    @property
    def is_scaled(self) -> bool:
        """Whether each slot's values have factors."""
        return self.centre is not None

    def release(self) -> None:
        """Free the memory of the mask and the factors."""
        self._mask = self._chosen = torch.empty(0, dtype=torch.bool)
        self._factors, self._all_factors = None, torch.empty(0)

    def _words(self, raw: torch.Tensor, size: int = 0) -> torch.Tensor:
        """`size`: bytes of a word, if not those that are chosen together."""
        size = size or self._word
        if raw.storage_offset() % size:  # a part of a larger tensor
            raw = raw.clone()
        return raw.view(WORDS[size])

    def _places(self, memory: SlotMemory, count: int, size: int) -> torch.Tensor:
        """Return the words of this tensor in each slot (slots × words)."""
        region = self._words(memory.bytes, size)
        shape = (count, self.leaf.nbytes // size)
        return region.as_strided(shape, (memory.stride // size, 1), self.begin // size)

    def write(
        self,
        memory: SlotMemory,
        count: int,
        draws: tuple[torch.Tensor, torch.Tensor],
        seed: int,
    ) -> None:
        """Write fresh contents into this tensor of `count` slots."""
        first, second = map(self._words, draws)
        places = self._places(memory, count, self._word)
        rng = random.Random(seed)  # noqa: S311  # the seed is the secret
        self._choose(count, len(first), rng, first.device)
        if places.device != first.device:  # a card that shares no memory
            places.copy_(self._scaled(torch.where(self._chosen, first, second), self._factors))
            self._last = None
            return
        if not self._mix_by_kernel(memory, count, draws):
            self._mix_in_pieces(places, first, second)
        if self._last is not None:
            turned = self._turned(self._last, self._chosen, first, second)
            factors = None if self._factors is None else self._factors.gather(1, self._last)
            places.scatter_(1, self._last, self._scaled(turned, factors))

    def _mix_by_kernel(
        self, memory: SlotMemory, count: int, draws: tuple[torch.Tensor, torch.Tensor]
    ) -> bool:
        """Mix on a card in one pass; return False where torch has to do it."""
        size = mixing_kernel.WORD_BYTES
        if not memory.bytes.is_cuda or self.leaf.nbytes % size or self.centre:
            return False
        first, second = (self._words(raw, size) for raw in draws)
        values = None if self._factors is None else self._values(self._factors)
        places = self._places(memory, count, size)
        return mixing_kernel.mix(places, (first, second), self._chosen, values)

    def _mix_in_pieces(
        self, places: torch.Tensor, first: torch.Tensor, second: torch.Tensor
    ) -> None:
        """Mix into all slots, piece by piece: what is mixed is in the cache when it is scaled."""
        piece_bytes = PIECE_BYTES // len(places)
        pieces = 1
        if piece_bytes >= MIN_PIECE_BYTES and not places.is_cuda:
            pieces = -(-len(first) * first.element_size() // piece_bytes)
        chosen = self._chosen.expand(places.shape)
        factors = None if self._factors is None else self._factors.tensor_split(pieces, 1)
        for piece, (is_first, one, other, place) in enumerate(
            zip(
                chosen.tensor_split(pieces, 1),
                first.tensor_split(pieces),
                second.tensor_split(pieces),
                places.tensor_split(pieces, 1),
                strict=True,
            )
        ):
            torch.where(is_first, one, other, out=place)
            self._scaled(place, None if factors is None else factors[piece])

    def _scaled(self, words: torch.Tensor, factors: torch.Tensor | None) -> torch.Tensor:
        """Scale the values in their memory by those of `factors`; return the words."""
        if factors is not None:
            self._scale(self._values(words), self._values(factors))
        return words

    def scale_anew(self, raw: torch.Tensor) -> None:
        """Scale a draw's bytes, in their memory, by factors that no slot has."""
        values = self._values(raw)
        self._scale(values, slot_scaling.factors(self.leaf, len(values), raw.device))

    def _scale(self, values: torch.Tensor, factors: torch.Tensor) -> None:
        if self.centre:
            values.sub_(self.centre).mul_(factors).add_(self.centre)
        else:
            values.mul_(factors)

    def _values(self, words: torch.Tensor) -> torch.Tensor:
        return slot_scaling.as_values(self.leaf, words)

    def _choose(self, count: int, length: int, rng: random.Random, device: torch.device) -> None:
        self._last = None
        if self.is_scaled:
            self._factors = self._factor_windows(count, length, rng, device)
        if not self.is_mixed:
            rows = [[rng.random() < 0.5] for _slot in range(count)]
            self._chosen = torch.tensor(rows, device=device)
            return
        if len(self._mask) != length + OFFSETS:
            self._mask = torch.randint(0, 2, (length + OFFSETS,), dtype=torch.bool, device=device)
        self._chosen = _windows(self._mask, count, length, rng)
        if device.type == "cuda":
            last = min(max(length // LAST_SHARE, MIN_LAST), MAX_LAST)
            self._last = torch.randint(0, length, (count, last), device=device)

    def _factor_windows(
        self, count: int, length: int, rng: random.Random, device: torch.device
    ) -> torch.Tensor:
        """Return the factors of each slot, which begin where the kernel can read them."""
        unit = mixing_kernel.WORD_BYTES // self._word
        if len(self._all_factors) != length + unit * OFFSETS:
            elements = (length + unit * OFFSETS) * self._word // item_bytes(self.leaf)
            drawn = slot_scaling.factors(self.leaf, elements, device)
            self._all_factors = drawn.view(WORDS[self._word])
        return _windows(self._all_factors, count, length, rng, unit)

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
        factors = None if self._factors is None else self._factors[slot]
        return self._scaled(mixed, factors).view(torch.uint8)


def _windows(
    all_words: torch.Tensor, count: int, length: int, rng: random.Random, unit: int = 1
) -> torch.Tensor:
    """Return a window of so many words for each slot, by lot, without copies.

    `unit`: words; windows begin at multiples of it.
    """
    step = rng.randrange(1, max(2, OFFSETS // (2 * count)))
    begin = rng.randrange(OFFSETS // 2 - 1)
    return all_words.as_strided((count, length), (unit * step, 1), unit * begin)


def item_bytes(leaf: Leaf) -> int:
    """Return the bytes of an element."""
    return leaf.nbytes // math.prod(leaf.shape)


def _word_bytes(leaf: Leaf) -> int:
    """Return the bytes of the words in which a tensor is mixed."""
    item = item_bytes(leaf)
    row = item * row_length(leaf)
    for size in sorted(WORDS, reverse=True):
        has_enough = leaf.nbytes // size > MIN_WORDS and row // size >= FEW_ELEMENTS
        if item < size and not leaf.nbytes % size and has_enough:
            return size
    return item


def row_length(leaf: Leaf) -> int:
    """Return the elements of a row: of the last dimension, and of images of the last two.

    Dimensions of one element are none.
    """
    lengths = [length for length in leaf.shape if length > 1]
    last = 2 if len(leaf.shape) >= IMAGE_DIMENSIONS else 1
    return math.prod(lengths[-last:])
