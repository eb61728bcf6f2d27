"""Shared memory that bytes cross in: made by trusted code, of fixed size, passed as a descriptor.

The seals matter: a process that could shrink a region would kill whoever reads it (SIGBUS).
"""

from __future__ import annotations

import fcntl
import os


def make(size: int, name: str) -> int:
    """Return the descriptor of `size` zero bytes that can neither grow nor shrink."""
    region = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(region, max(size, 1))
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(region, fcntl.F_ADD_SEALS, seals)
    except OSError:
        os.close(region)
        raise
    return region
