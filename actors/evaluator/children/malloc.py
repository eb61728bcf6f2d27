"""What glibc's malloc does in a child that is timed, or whose reads of old memory are looked for.

Left to itself it gives large blocks back to the system and takes them again, in some processes at
every call and in others never: the same module runs twice as fast in one process as in the next.
Elsewhere than with glibc nothing happens.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_PERTURB = -1, -3, -6
MAX_KEPT = 32 << 20  # the largest threshold that glibc takes
NEVER = -1


def never_trim() -> None:
    """Keep what is freed, as in a process that has run for a long time."""
    _set(M_MMAP_THRESHOLD, MAX_KEPT)
    _set(M_TRIM_THRESHOLD, NEVER)


def fill_freed_memory(byte: int) -> None:
    """Fill what is given and taken back with `byte`; 0 for not at all."""
    _set(M_PERTURB, byte)


def _set(parameter: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(parameter, value)
