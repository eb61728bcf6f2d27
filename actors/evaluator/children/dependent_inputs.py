"""Inputs of a block's calls that the outputs of the calls before them decide.

Before its call each word of a slot comes from one of two draws: from which, a hash of the whole
output before says.  So no call's inputs are there before the call before it is computed, and
nothing can be computed together.  The runner does this between calls, on the candidate's stream;
the referee does it again with the outputs that it finds, so a runner that was tampered with has
wrong outputs.

The hash is one that a candidate can't steer by tiny changes of an output: SHA-256 on a host, and a
tree of BLAKE2s on a card (`decision_kernel`), where a copy to the host would stop each call.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

import torch

from actors.evaluator.children import decision_kernel
from actors.evaluator.children.source_import import seed_in_use
from actors.evaluator.children.tensors import tensor_bytes
from actors.evaluator.children.tensors.input_slots import SlotMemory, write_slot
from actors.evaluator.ipc.layout_checks import (
    SLOT_ALIGNMENT,
    Layout,
    offsets,
    slot_bytes,
    tensor_leaves,
)
from actors.evaluator.ipc.runner_orders import CallDependent
from protocol.layouts import ITEM_BYTES

PARTS = 32  # of a slot, and bytes of a hash
# The words of a slot are in its parts in turn: a row of a batch has words of all parts, so it can't
# be computed before it is known what decides.  No element is in two words, and they are no larger:
# all choices of a few words could be tried out.
WORDS = {4: torch.int32, 8: torch.int64, 16: torch.complex128}
MOST_ROWS = 128  # of a word for each part, chosen of a tensor: of a larger one, evenly spread


Turn: TypeAlias = tuple[int, tuple[object, ...]]  # a call's slot and its inputs


class DependentInputs(Protocol):
    """The inputs of one block: call c has slot c, which is mixed with slot `calls` + c."""

    def choose(self, call: int, before: object) -> None:
        """Write a call's inputs; `before`: the output of the call before it."""


def of_block(
    slots: torch.Tensor, calls: int, layout: Layout, program: bytes, *, is_whole: bool
) -> DependentInputs:
    """Return the inputs of a block.

    `slots`: the bytes of twice as many slots; `program`: the kernel that decides, where they are on
    a card; `is_whole`: a slot has the contents of one of two slots, not words of both.
    """
    rows, parts = slots.view(2 * calls, -1), 1 if is_whole else PARTS
    pairs = list(zip(rows[:calls].unbind(), rows[calls:].unbind(), strict=True))
    kind = InputsOnCard if slots.is_cuda else InputsOnHost
    return kind(pairs, layout, parts, program)


def decided_turns(
    order: CallDependent,
    memory: SlotMemory,
    slots: Mapping[int, tuple[object, ...]],
    outputs: Sequence[object],
    program: bytes,
) -> Iterator[Turn]:
    """Yield slot and inputs of each call, once the output of the call before has decided them.

    A generator: it is in no caller's frame while the module is called.  `outputs`: where those of
    the block are put, beside those of earlier blocks.
    """
    used = memory.bytes[: order.slots * memory.stride]
    dependent = of_block(used, order.calls, memory.inputs, program, is_whole=order.is_whole)
    for call in range(order.calls):
        if order.seed is not None:
            seed_in_use(order.seed + call)
        if call:
            dependent.choose(call, outputs[(call - 1) % len(outputs)])
        yield call, slots[call]


class InputsOnHost:
    """The inputs of one block on a host."""

    def __init__(
        self,
        pairs: Sequence[tuple[torch.Tensor, torch.Tensor]],
        layout: Layout,
        parts: int,
        _program: bytes,
    ) -> None:
        self._parts = parts
        dtype = _word(layout)
        spans = _chosen_words(layout, dtype.itemsize)
        self._rows = [
            [[rows for span in spans for rows in _in_rows(raw.view(dtype)[span])] for raw in pair]
            for pair in pairs
        ]

    def choose(self, call: int, before: object) -> None:
        """Write a call's inputs; `before`: the output of the call before it."""
        digest = hashlib.sha256(usedforsecurity=False)
        for raw in _bytes_of(before):
            digest.update((ctypes.c_char * raw.nbytes).from_address(raw.data_ptr()))
        is_second = torch.frombuffer(bytearray(digest.digest()), dtype=torch.int8) < 0
        is_second = is_second[: self._parts]
        for mine, other in zip(*self._rows[call], strict=True):
            decided = is_second if mine.dim() > 1 else is_second[: len(mine)]
            torch.where(decided, other, mine, out=mine)


class InputsOnCard:
    """The inputs of one block on a card."""

    def __init__(
        self,
        pairs: Sequence[tuple[torch.Tensor, torch.Tensor]],
        layout: Layout,
        parts: int,
        program: bytes,
    ) -> None:
        word_bytes = _word(layout).itemsize
        self._slots = decision_kernel.DecidedSlots(
            decision_kernel.loaded(program),
            pairs,
            _chosen_words(layout, word_bytes),
            word_bytes,
            parts,
        )

    def choose(self, call: int, before: object) -> None:
        """Write a call's inputs; `before`: the output of the call before it."""
        self._slots.decide(call, list(_bytes_of(before)))


def chosen(
    layout: Layout,
    draws: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]],
    before: object,
    program: bytes,
    *,
    is_whole: bool,
) -> list[torch.Tensor]:
    """Return the bytes of each tensor of a call's inputs, of those of its two slots."""
    device = next(raw.device for raw in draws[0] if raw.numel())
    slots = torch.cat([_slot_of(layout, raws, device) for raws in draws])
    of_block(slots, 1, layout, program, is_whole=is_whole).choose(0, before)
    begins = offsets(layout, SLOT_ALIGNMENT)
    return [slots[at : at + raw.numel()] for at, raw in zip(begins, draws[0], strict=False)]


def _slot_of(layout: Layout, raws: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    slot = torch.zeros(slot_bytes(layout), dtype=torch.uint8, device=device)
    write_slot(slot, layout, raws)
    return slot


def _bytes_of(before: object) -> Iterator[torch.Tensor]:
    """Yield the bytes of each tensor of an output that has any, as a contiguous tensor."""
    for tensor in tensor_bytes.tensors_in(before):
        if tensor.numel():
            # Each operation of torch takes some microseconds of a call.
            is_plain = tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())
            yield tensor if is_plain else tensor_bytes.logical_bytes(tensor)


def _word(layout: Layout) -> torch.dtype:
    """Return the dtype of words: of integers as large as the largest elements, or larger."""
    largest = max((ITEM_BYTES[leaf.dtype] for leaf in tensor_leaves(layout)), default=0)
    return WORDS[max(largest, min(WORDS))]


def _in_rows(words: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield words in rows of one for each part, and those of the last row that is not full."""
    full = len(words) // PARTS * PARTS
    yield words[:full].view(-1, PARTS)
    if full < len(words):
        yield words[full:]


def _chosen_words(layout: Layout, word_bytes: int) -> list[slice]:
    """Return the words of a slot that are chosen: some of each tensor, however small it is.

    An odd step: in a tensor whose rows have a power of two of bytes, an even one would choose at
    the same place of each row, or in few rows.
    """
    found: list[slice] = []
    row_bytes = PARTS * word_bytes
    begins = offsets(layout, SLOT_ALIGNMENT)
    for begin, end in itertools.pairwise(begins):
        first, last = begin // row_bytes * PARTS, -(-end // row_bytes) * PARTS
        step = -(-(last - first) // (MOST_ROWS * PARTS)) | 1
        if found and step == found[-1].step == 1:  # a neighbour, chosen at once
            found[-1] = slice(found[-1].start, last, 1)
        elif last > first:
            found.append(slice(first, last, step))
    return found
