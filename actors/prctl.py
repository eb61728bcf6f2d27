"""The Linux call `prctl` and its option numbers, for supervisors and sandboxed children."""

from __future__ import annotations

import ctypes
import os

PR_SET_PDEATHSIG = 1  # the signal that this process gets when its parent ends
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36  # orphaned descendants become children of this process
PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, *values: int) -> int:
    """Call prctl; raise OSError where it fails."""
    longs = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    result = int(_libc.prctl(option, *longs))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")
    return result
