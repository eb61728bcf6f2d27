"""Inputs of a block's calls that the outputs of the calls before them decide.

Before its call each part of a slot's bytes comes from one of two draws: from which, the bits of the
whole output before say.  So no call's inputs are there before the call before it is computed, and
nothing can be computed together.  The runner does this between calls, on the candidate's stream;
the referee does it again with the outputs that it finds, so a runner that was tampered with has
wrong outputs.

On a host a hash of the output decides.  A sum of its integers could be steered by tiny values where
the output is zero, for all calls of a block at once.  On a card, where a hash would take a copy to
the host for each call, the sum still decides.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import random
from collections.abc import Iterator, Sequence

import torch

from actors.evaluator.children.tensors import tensor_bytes
from actors.evaluator.children.tensors.input_slots import write_slot
from actors.evaluator.ipc.layout_checks import SLOT_ALIGNMENT, Layout, offsets, slot_bytes

PARTS = 32  # of a slot, and bytes of a hash
# The words of a slot are in its parts in turn: a row of a batch has words of all parts, so it can't
# be computed before it is known what decides.  No element is in two words.
WORD = torch.complex128
ROW_BYTES = PARTS * 16
MOST_ROWS = 128  # of words of a tensor, chosen on a host: of a larger one evenly spread words
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class DependentInputs:
    """The inputs of one block: call c has slot c, which is mixed with slot `calls` + c."""

    def __init__(self, slots: torch.Tensor, calls: int, layout: Layout, *, is_whole: bool) -> None:
        """`slots`: the bytes of twice as many slots; `is_whole`: a slot has one part."""
        self._calls = calls
        self._is_whole = is_whole
        self._factors = _factors(slots.device)
        words = slots.view(WORD).view(2 * calls, -1)
        spans = [slice(None)] if is_whole or slots.is_cuda else _chosen_words(layout)
        self._rows = [
            [rows for span in spans for rows in _in_rows(slot[span])] for slot in words.unbind()
        ]

    def choose(self, call: int, before: object) -> None:
        """Write a call's inputs; `before`: the output of the call before it."""
        first, second = self._rows[call], self._rows[self._calls + call]
        is_second = _is_second(before, self._factors, is_whole=self._is_whole)
        for mine, other in zip(first, second, strict=True):
            decided = is_second if mine.dim() > 1 else is_second[: len(mine)]
            torch.where(decided, other, mine, out=mine)


def chosen(
    layout: Layout,
    draws: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]],
    before: object,
    *,
    is_whole: bool,
) -> list[torch.Tensor]:
    """Return the bytes of each tensor of a call's inputs, of those of its two slots."""
    device = next(raw.device for raw in draws[0] if raw.numel())
    slots = torch.cat([_slot_of(layout, raws, device) for raws in draws])
    DependentInputs(slots, 1, layout, is_whole=is_whole).choose(0, before)
    begins = offsets(layout, SLOT_ALIGNMENT)
    return [slots[at : at + raw.numel()] for at, raw in zip(begins, draws[0], strict=False)]


def _slot_of(layout: Layout, raws: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    slot = torch.zeros(slot_bytes(layout), dtype=torch.uint8, device=device)
    write_slot(slot, layout, raws)
    return slot


def _in_rows(words: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield words in rows of one for each part, and those of the last row that is not full."""
    full = len(words) // PARTS * PARTS
    yield words[:full].view(-1, PARTS)
    if full < len(words):
        yield words[full:]


def _chosen_words(layout: Layout) -> list[slice]:
    """Return the words of a slot that are chosen: some of each tensor, however small it is.

    An odd step: in a tensor whose rows have a power of two of bytes, an even one would choose at
    the same place of each row, or in few rows.
    """
    found: list[slice] = []
    begins = offsets(layout, SLOT_ALIGNMENT)
    for begin, end in itertools.pairwise(begins):
        first, last = begin // ROW_BYTES * PARTS, -(-end // ROW_BYTES) * PARTS
        step = -(-(last - first) // (MOST_ROWS * PARTS)) | 1
        if found and step == found[-1].step == 1:  # a neighbour, chosen at once
            found[-1] = slice(found[-1].start, last, 1)
        elif last > first:
            found.append(slice(first, last, step))
    return found


def _factors(device: torch.device) -> torch.Tensor:
    """Return odd factors: the sign of each product depends on all bits of the other factor."""
    rng = random.Random(0)  # noqa: S311  # no secret
    odd = [rng.getrandbits(63) | 1 for _part in range(PARTS)]
    return torch.tensor(odd, dtype=torch.int64, device=device)


def _is_second(before: object, factors: torch.Tensor, *, is_whole: bool) -> torch.Tensor:
    """Return for each part whether it comes from the second draw."""
    decides = _sum_decides if factors.is_cuda else _hash_decides
    is_second = decides(before, factors)
    return is_second[:1] if is_whole else is_second


def _hash_decides(before: object, _factors: torch.Tensor) -> torch.Tensor:
    digest = hashlib.sha256(usedforsecurity=False)
    for tensor in tensor_bytes.tensors_in(before):
        if tensor.numel():
            raw = tensor_bytes.logical_bytes(tensor)
            digest.update((ctypes.c_char * raw.numel()).from_address(raw.data_ptr()))
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.int8) < 0


def _sum_decides(before: object, factors: torch.Tensor) -> torch.Tensor:
    total: torch.Tensor | int = 0
    for tensor in tensor_bytes.tensors_in(before):
        values = tensor.resolve_conj().resolve_neg()
        if values.is_complex():
            values = torch.view_as_real(values)
        # A sum of integers: in any order the same.
        total = total + values.view(INTEGERS[values.element_size()]).sum(dtype=torch.int64)
    return factors * total < 0
