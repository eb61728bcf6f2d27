"""Outputs of a candidate in the referee, copied at once: the process that wrote them may go on."""

from __future__ import annotations

import torch

from actors.evaluator.children.tensors import tensor_bytes
from actors.evaluator.children.timing_memory import TimingMemory
from actors.evaluator.ipc.layout_checks import Layout
from actors.evaluator.ipc.referee_orders import StashFromArena, StashOutputs


class StashedOutputs:
    """The outputs that were copied last, by their numbers."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._copies: list[torch.Tensor] = []  # bytes of each, in logical order

    def copy(self, order: StashOutputs, descriptor: int) -> None:
        """Copy parts of the bytes of `descriptor`."""
        # One thread: idle OpenMP threads would spin for a while, in the next timed window.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        with tensor_bytes.open_buffer(descriptor, order.size) as buffer:
            copies = [buffer[begin:end].clone() for begin, end in order.parts]
        if order.strided:
            pairs = zip(copies, order.strided, strict=True)
            copies = [tensor_bytes.in_logical_order(part, layout) for part, layout in pairs]
        self._copies = copies
        torch.set_num_threads(threads)

    def copy_from_arena(self, order: StashFromArena, memory: TimingMemory) -> None:
        """Copy outputs out of the arena, or of the slots."""
        self._copies = [
            memory.output(layout, places)
            for layout, places in zip(order.outputs, order.places, strict=True)
        ]

    def value(self, number: int, layout: Layout) -> object:
        """Return a fresh value of `layout` from the bytes of an output."""
        return tensor_bytes.value_of(layout, self._copies[number], self._device)

    def clear(self) -> None:
        """Free the copies."""
        self._copies = []
