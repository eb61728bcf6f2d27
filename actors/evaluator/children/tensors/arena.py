"""The memory of a card from which timed calls allocate: a pool of torch's, in an arena or not.

torch's caching allocator has pools that take their memory from an allocator of ours.  The timed
calls of a candidate run in such a pool, whose segments are cut off memory that the referee
allocated: its arena.  So the referee reads the outputs where they are, and nothing is copied for
that.  Segments are taken and kept before the first timed call; on the clock the pool works like
torch's own, with one exception.  torch takes a pool that is allocated from for a graph that is
captured: what `record_stream` was called for is not used again before that ends (`reclaim`).

Nobody reads the outputs of the reference.  It has a pool as well, in memory of the driver, so that
a block of either side takes as long besides its calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from actors.evaluator.children.tensors import arena_allocator, cuda_vmm
from actors.evaluator.children.tensors.arena_allocator import ALIGNMENT
from actors.evaluator.children.tensors.input_slots import SlotMemory
from actors.evaluator.children.tensors.tensor_bytes import tensors_in

ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)


class CallPool:
    """A pool of torch's, from which the timed calls of one side allocate."""

    def __init__(self, allocator: Any = None) -> None:
        """`allocator`: where the pool has its memory from; None: from the driver."""
        self._pool = torch.cuda.MemPool(allocator)
        self.slots: SlotMemory | None = None  # of the inputs, which outputs may lie in, too

    def can_be_read_at(self, places: Sequence[int]) -> bool:
        """Whether the referee can read at all these addresses, if it needs to."""
        return not places or min(places) <= max(places)  # as long on the clock as in an arena

    def allocating(self) -> AbstractContextManager[object]:
        """Have this thread's tensors allocated in the pool."""
        return torch.cuda.use_mem_pool(self._pool)

    def reclaim(self) -> None:
        """Have the pool use again what other streams have used, too, once they are done with it.

        torch looks after that when something is allocated outside of all pools.  Streams on which
        it only now notes that it waits for them may seem busy until they are asked the next time.
        """
        torch.empty(1, dtype=torch.uint8, device="cuda")


class Arena(CallPool):
    """A pool in memory that the referee maps, too."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._mapping = cuda_vmm.Mapping(descriptor, size)
        self.begin = self._mapping.bytes.data_ptr()
        self.end = self.begin + size
        self._next = self.begin
        self._freed: dict[int, list[int]] = {}  # segments by size
        self._functions = ALLOCATE(self._allocate), FREE(self._free)
        addresses = arena_allocator.native_functions(self.begin, size)
        if addresses is None:
            mine = [ctypes.cast(each, ctypes.c_void_p).value or 0 for each in self._functions]
            addresses = mine[0], mine[1]
        super().__init__(torch._C._cuda_customAllocator(*addresses))
        # While Python ends, a pool that goes would call functions that are gone already.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._pool))

    def can_be_read_at(self, places: Sequence[int]) -> bool:
        """Whether the referee can read at all these addresses: in the arena, or in the slots."""
        if not places:
            return True
        first, last = min(places), max(places)  # on the clock: most outputs are in one of both
        begin, end = (self.slots.begin, self.slots.end) if self.slots is not None else (0, 0)
        if self.begin <= first <= last < self.end or begin <= first <= last < end:
            return True
        return all(begin <= each < end or self.begin <= each < self.end for each in places)

    def take(self, outputs: Sequence[object], times: int) -> None:
        """Take segments for so many copies of the tensors in outputs, and keep them."""
        sizes = [each.nbytes for each in tensors_in(outputs) if each.nbytes]
        with self.allocating():
            held = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes * times]
            del held

    def _allocate(self, size: int, _device: int, _stream: int | None) -> int | None:
        """Return memory in the arena; outside of it once it is full."""
        freed = self._freed.get(size)
        if freed:
            return freed.pop()
        place, length = self._next, -(-size // ALIGNMENT) * ALIGNMENT
        if place + length > self.end:
            return cuda_vmm.allocate_private(size)
        self._next += length
        return place

    def _free(self, place: int | None, size: int, _device: int, _stream: int | None) -> None:
        if place is None:
            return
        if self.begin <= place < self.end:
            self._freed.setdefault(size, []).append(place)
        else:
            cuda_vmm.free_private(place)
