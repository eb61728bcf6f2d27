"""Input slots of timed blocks: tensors in memory that a trusted process writes.

The referee writes the slots while a side is frozen, and the side's tensors lie in the same memory.
So no side copies or is told anything when new inputs come, and it can't leave anything out.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence

import torch

from actors.evaluator.children.tensors import cuda_vmm, tensor_bytes
from actors.evaluator.ipc.layout_checks import (
    SLOT_ALIGNMENT,
    Layout,
    Leaf,
    offsets,
    slot_bytes,
)

BytesAt = Callable[[int, int], torch.Tensor]  # the bytes from an offset on, and how many


class SlotMemory:
    """The memory of a number of slots, mapped into this process."""

    def __init__(self, descriptor: int, inputs: Layout, count: int) -> None:
        """`inputs`: of each slot."""
        self.inputs = inputs
        self.count = count
        self.is_on_card = cuda_vmm.is_device_memory(descriptor)
        self.stride = slot_bytes(inputs)
        size = count * self.stride
        self.begin = self.end = 0  # its addresses on the card; 0: it is the host's
        self._mapping: cuda_vmm.Mapping | None = None
        if self.is_on_card:
            self._mapping = cuda_vmm.Mapping(descriptor, size)
            self.bytes = self._mapping.bytes
            self.begin = self.bytes.data_ptr()
            self.end = self.begin + size
            self._bytes_at: BytesAt = self._mapping.bytes_at
        else:
            flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
            pages = mmap.mmap(descriptor, size, flags=flags)
            self.bytes = torch.frombuffer(pages, dtype=torch.uint8)
            self._bytes_at = lambda begin, length: torch.frombuffer(
                pages, dtype=torch.uint8, offset=begin, count=length
            )

    def values(self) -> list[tuple[object, ...]]:
        """Return the inputs in each slot; each tensor has a storage of its own."""
        return [self.value(slot) for slot in range(self.count)]

    def value(self, slot: int) -> tuple[object, ...]:
        """Return the inputs in a slot, in its memory."""
        places = iter(offsets(self.inputs, SLOT_ALIGNMENT))

        def tensor(leaf: Leaf) -> torch.Tensor:
            begin = slot * self.stride + next(places)
            if not leaf.nbytes:
                return tensor_bytes.empty_tensor(leaf, self.bytes.device)
            return tensor_bytes.strided_view(leaf, self._bytes_at(begin, leaf.nbytes))

        return tuple(tensor_bytes.assemble(self.inputs, tensor))  # type: ignore[arg-type]  # a list

    def write(self, slot: int, raws: Sequence[torch.Tensor]) -> None:
        """Write the bytes of each tensor of a slot's inputs."""
        begin = slot * self.stride
        write_slot(self.bytes[begin : begin + self.stride], self.inputs, raws)

    def close(self) -> None:
        """Unmap the memory on a card; a host's pages go with the last tensor."""
        if self._mapping is not None:
            self._mapping.close()
            self._mapping = None


def write_slot(slot: torch.Tensor, inputs: Layout, raws: Sequence[torch.Tensor]) -> None:
    """Write the bytes of each tensor of `inputs` into `slot`: its `slot_bytes` bytes."""
    for begin, raw in zip(offsets(inputs, SLOT_ALIGNMENT), raws, strict=False):
        slot[begin : begin + raw.numel()].copy_(raw)
