"""Inputs of a block's calls that the outputs of the calls before them decide.

Before its call each part of a slot's bytes comes from one of two draws: from which, the bits of the
whole output before say.  So no call's inputs are there before the call before it is computed, and
nothing can be computed together.  The runner does this between calls, on the candidate's stream;
the referee does it again with the outputs that it finds, so a runner that was tampered with has
wrong outputs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from actors.evaluator.children.tensors import tensor_bytes
from actors.evaluator.children.tensors.input_slots import write_slot
from actors.evaluator.ipc.layout_checks import SLOT_ALIGNMENT, Layout, offsets, slot_bytes

WORD = torch.int64
PARTS = 32  # of a slot: of 16 bytes at least, so no element is in two of them
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class DependentInputs:
    """The inputs of one block: call c has slot c, which is mixed with slot `calls` + c."""

    def __init__(self, slots: torch.Tensor, calls: int, *, is_whole: bool) -> None:
        """`slots`: the bytes of twice as many slots; `is_whole`: a slot has one part."""
        self._calls = calls
        self._factors = _factors(slots.device, is_whole=is_whole)
        self._rows = slots.view(WORD).view(2 * calls, PARTS, -1).unbind()

    def choose(self, call: int, before: object) -> None:
        """Write a call's inputs; `before`: the output of the call before it."""
        first, second = self._rows[call], self._rows[self._calls + call]
        torch.where(_is_second(before, self._factors), second, first, out=first)


def chosen(
    layout: Layout,
    draws: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]],
    before: object,
    *,
    is_whole: bool,
) -> list[torch.Tensor]:
    """Return the bytes of each tensor of a call's inputs, of those of its two slots."""
    device = next(raw.device for raw in draws[0] if raw.numel())
    first, second = (_slot_of(layout, raws, device).view(PARTS, -1) for raws in draws)
    factors = _factors(device, is_whole=is_whole)
    mixed = torch.where(_is_second(before, factors), second, first)
    flat = mixed.view(-1).view(torch.uint8)
    begins = offsets(layout, SLOT_ALIGNMENT)
    return [flat[at : at + raw.numel()] for at, raw in zip(begins, draws[0], strict=False)]


def _slot_of(layout: Layout, raws: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    slot = torch.zeros(slot_bytes(layout), dtype=torch.uint8, device=device)
    write_slot(slot, layout, raws)
    return slot.view(WORD)


def _factors(device: torch.device, *, is_whole: bool) -> torch.Tensor:
    """Return odd factors: the sign of each product depends on all bits of the other factor."""
    rng = random.Random(0)  # noqa: S311  # no secret
    odd = [rng.getrandbits(63) | 1 for _part in range(PARTS)]
    return torch.tensor([[odd[0] if is_whole else each] for each in odd], dtype=WORD, device=device)


def _is_second(before: object, factors: torch.Tensor) -> torch.Tensor:
    """Return for each part whether it comes from the second draw."""
    total: torch.Tensor | int = 0
    for tensor in tensor_bytes.tensors_in(before):
        values = tensor.resolve_conj().resolve_neg()
        if values.is_complex():
            values = torch.view_as_real(values)
        # A sum of integers: in any order the same.
        total = total + values.view(INTEGERS[values.element_size()]).sum(dtype=WORD)
    return factors * total < 0
