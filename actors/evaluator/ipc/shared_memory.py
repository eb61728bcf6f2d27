"""Shared memory between processes: made by trusted code, of fixed size, passed as a descriptor.

The seals matter.  A process that could shrink a region would kill its readers (SIGBUS).  A process
that could write to what others read later could send them messages or change their inputs.
"""

from __future__ import annotations

import fcntl
import os


def allocate(size: int, name: str) -> int:
    """Return the descriptor of `size` zero bytes that can neither grow nor shrink.

    A region that is only to be read is filled first and then passed to `make_read_only`.
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
    """Return the descriptor of `size` zero bytes for results, which no process can seal.

    Its pages are allocated here, so that a timed process that writes to them does not pay for it.
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
    """Seal a region, so that it can only be read, or mapped privately."""
    fcntl.fcntl(region, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL)
