"""Red zones: memory around a candidate's outputs, poisoned before a call and inspected after it.

A candidate that reads memory which it never wrote reads NaN, not the result of an earlier call.  A
candidate that writes past the end of its output writes into memory that this module holds.  Red
zones are used in checked calls, never in timed ones.  They run in the runner, so they help honest
code; a dishonest candidate's outputs are judged outside of its process.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from actors.evaluator.children.tensors import malloc

PATTERN = 0xA5
POISON = 0xFF  # NaN in every floating type
ALLOCATION_ROUNDING = 512  # what torch's caching allocator rounds to
SMALL_ALLOCATION = 1 << 20  # up to this size the allocator uses small segments
SMALL_ZONE, ZONE = 1 << 17, 1 << 21  # the red zone on each side
MAX_PLACEMENTS = 16


class RedZones:
    """The red zones of one checked call."""

    def __init__(self, device: str, sizes: Sequence[int]) -> None:
        """`sizes`: the size of each expected output in bytes."""
        self._zones: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._padding: list[torch.Tensor] = []  # kept, so that only one hole has this size
        if device == "cuda":
            torch.cuda.empty_cache()  # the candidate can get only memory that is laid out here
            for size in sizes:
                self._place_zones(-(-size // ALLOCATION_ROUNDING) * ALLOCATION_ROUNDING)
            torch.cuda.synchronize()
        else:
            malloc.fill_freed_memory(POISON)

    def _place_zones(self, size: int) -> None:
        """Leave a poisoned hole of `size` bytes between two red zones."""
        if not size:
            return
        zone = SMALL_ZONE if size <= SMALL_ALLOCATION else ZONE
        place = 0
        if zone == ZONE:
            whole = _bytes(zone + size + zone)
            place = whole.data_ptr()
            del whole  # cached: the next three allocations come out of it, one after the other
        for _try in range(MAX_PLACEMENTS):
            before = _bytes(zone)
            if place and before.data_ptr() != place:
                self._padding.append(before)  # fills a gap at another address
                continue
            hole, after = _bytes(size), _bytes(zone)
            if before.data_ptr() + zone == hole.data_ptr() == after.data_ptr() - size:
                before.fill_(PATTERN)
                after.fill_(PATTERN)
                hole.fill_(POISON)
                self._zones.append((before, after))
                return
            self._padding += [before, hole, after]

    def breach(self) -> str:
        """Return a description of a write outside of an output; "" when none was found."""
        if not self._zones:
            malloc.fill_freed_memory(0)
            return ""
        for before, after in self._zones:
            for zone, where in ((after, "after the end"), (before, "before the beginning")):
                bad = zone != PATTERN
                count = int(bad.sum().item())
                if count:
                    first = int(bad.to(torch.uint8).argmax().item())
                    at = first if zone is after else zone.numel() - first
                    return f"writes outside of its output: {count} bytes, {at} bytes {where}"
        return ""


def _bytes(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")
