"""Settings of glibc's malloc in a child: for stable timings, and to detect reads of freed memory.

By default malloc returns large blocks to the system and takes them again, in some processes at
every call and in others never: the same module runs twice as fast in one process as in the next.
Without glibc these functions do nothing.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_PERTURB = -1, -3, -6
MAX_KEPT = 32 << 20  # the largest threshold that glibc accepts
NEVER = -1


def never_trim() -> None:
    """Keep freed memory in the process, as in one that has run for a long time."""
    _set(M_MMAP_THRESHOLD, MAX_KEPT)
    _set(M_TRIM_THRESHOLD, NEVER)


def fill_freed_memory(byte: int) -> None:
    """Fill allocated and freed memory with `byte`; 0 turns this off."""
    _set(M_PERTURB, byte)


def _set(parameter: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(parameter, value)
