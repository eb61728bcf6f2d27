"""Shared memory that bytes cross in: made by trusted code, of fixed size, passed as a descriptor.

The seals matter: a process that could shrink a region would kill whoever reads it (SIGBUS), and one
that could write to what others will read would speak to them, or spoil it for them.
"""

from __future__ import annotations

import fcntl
import os


def allocate(size: int, name: str) -> int:
    """Return the descriptor of `size` zero bytes that can neither grow nor shrink.

    Whoever has filled it with what is only to be read says `make_read_only`.
    """
    region = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(region, max(size, 1))
        fcntl.fcntl(region, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except OSError:
        os.close(region)
        raise
    return region


def allocate_unsealed(size: int) -> int:
    """Return the descriptor of `size` zero bytes for results, which nobody can seal.

    Its pages are there already: whoever writes to them is not on the clock for them.
    """
    region = allocate(size, "results")
    try:
        fcntl.fcntl(region, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
        os.posix_fallocate(region, 0, max(size, 1))
    except OSError:
        os.close(region)
        raise
    return region


def make_read_only(region: int) -> None:
    """Make a region one that can only be read (or mapped privately) from now on."""
    fcntl.fcntl(region, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL)
