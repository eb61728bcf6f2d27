"""Theoretical occupancy: how many of a multiprocessor's threads a kernel's blocks can fill.  Pure.

The rules are those of the CUDA programming guide: registers are allocated by warp in units of 256,
warps in units of four, and every block takes 1 KiB of shared memory more than it asks for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from actors.evaluator.profiling.ncu_metrics import RESERVED_SHARED
from protocol.facts import OccupancyLimit
from protocol.values import Value

REGISTER_UNIT = 256  # registers that a warp is given at once
WARP_UNIT = 4
MAX_BLOCKS = {"7.5": 16, "8.6": 16, "8.7": 16, "8.9": 24, "12.0": 24, "12.1": 24}
USUAL_BLOCKS = 32


class MultiprocessorLimits(Value, frozen=True, kw_only=True):
    """What one multiprocessor has."""

    count: int  # of the card
    threads: int
    registers: int
    shared_bytes: int
    blocks: int = USUAL_BLOCKS
    warp: int = 32
    reserved_shared: int = RESERVED_SHARED


class Occupancy(Value, frozen=True, kw_only=True):
    """How full a multiprocessor can be."""

    share: float  # of its threads
    limit: OccupancyLimit  # what allows no further block; "" where all threads are used
    blocks: int  # on one multiprocessor at the same time


def multiprocessor_limits(facts: Mapping[str, str]) -> MultiprocessorLimits | None:
    """Return the limits in a card's facts (`devices/device.py`); None where one is missing."""
    capability = facts.get("compute capability", "")
    count = _figure(facts, "multiprocessors")
    threads = _figure(facts, "threads a multiprocessor")
    registers = _figure(facts, "registers a multiprocessor")
    shared_kib = _figure(facts, "shared memory a multiprocessor")
    if not (count and threads and registers and shared_kib):
        return None
    return MultiprocessorLimits(
        count=count,
        threads=threads,
        registers=registers,
        shared_bytes=shared_kib << 10,
        blocks=MAX_BLOCKS.get(capability, USUAL_BLOCKS),
        warp=_figure(facts, "threads a warp") or 32,
        reserved_shared=0 if capability.startswith(("6.", "7.")) else RESERVED_SHARED,
    )


def _figure(facts: Mapping[str, str], name: str) -> int:
    found = re.match(r"\d{1,9}", facts.get(name, ""))
    return int(found[0]) if found else 0


def theoretical_occupancy(
    block_threads: int, registers: int, shared_bytes: int, limits: MultiprocessorLimits
) -> Occupancy | None:
    """Return the occupancy of blocks of this size; None for a block that can't run."""
    if block_threads <= 0 or registers < 0 or shared_bytes < 0:
        return None
    warps = math.ceil(block_threads / limits.warp)
    fits: dict[OccupancyLimit, int] = {
        "threads": limits.threads // limits.warp // warps,
        "blocks": limits.blocks,
    }
    if registers:
        a_warp = math.ceil(registers * limits.warp / REGISTER_UNIT) * REGISTER_UNIT
        possible = limits.registers // a_warp // WARP_UNIT * WARP_UNIT
        fits["registers"] = possible // warps
    if shared_bytes:
        fits["shared memory"] = limits.shared_bytes // (shared_bytes + limits.reserved_shared)
    blocks = min(fits.values())
    if blocks < 1:
        return None
    share = blocks * warps * limits.warp / limits.threads
    limit = next(name for name, most in sorted(fits.items()) if most == blocks)
    return Occupancy(share=min(1.0, share), limit="" if share >= 1.0 else limit, blocks=blocks)
