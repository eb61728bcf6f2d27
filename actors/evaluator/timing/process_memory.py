"""The memory of a frozen process, written and read by the judge.

Nothing of that process runs while bytes go in or out, so no thread of it can work on them untimed.
The kernel permits this where it would permit a debugger: for processes of the same user that the
judge started.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Sequence
from typing import Literal, TypeAlias

from protocol.values import Value

MAX_PIECES_PER_CALL = 1024  # pieces in one call: the kernel's limit (UIO_MAXIOV)
IOVEC = struct.Struct("@PN")  # struct iovec

VmCall: TypeAlias = Literal["process_vm_writev", "process_vm_readv"]

_libc = ctypes.CDLL(None, use_errno=True)


class ProcessMemoryError(OSError):
    """The process does not permit access, or has no memory at an address."""


class MemoryPiece(Value, frozen=True, kw_only=True):
    """Bytes of a region of shared memory, and where they belong in the process."""

    begin: int  # in the region
    size: int
    address: int  # in the process


def is_refusal(error: ProcessMemoryError) -> bool:
    """Whether the machine refuses access, whatever the address."""
    return error.errno not in (errno.EFAULT, errno.EIO)


def write(pid: int, region: int, pieces: Sequence[MemoryPiece]) -> None:
    """Copy pieces of a region into a process; raise `ProcessMemoryError`."""
    # A private mapping: a region that is sealed against writing can't be mapped otherwise.
    _move("process_vm_writev", pid, region, pieces, mmap.MAP_PRIVATE)


def read(pid: int, region: int, pieces: Sequence[MemoryPiece]) -> None:
    """Copy pieces of a process's memory into a region; raise `ProcessMemoryError`."""
    _move("process_vm_readv", pid, region, pieces, mmap.MAP_SHARED)


def _move(call: VmCall, pid: int, region: int, pieces: Sequence[MemoryPiece], flags: int) -> None:
    size = max((piece.begin + piece.size for piece in pieces), default=0)
    if not size:
        return
    with mmap.mmap(region, size, flags=flags) as mapping:
        begin = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        for first in range(0, len(pieces), MAX_PIECES_PER_CALL):
            _move_some(call, pid, begin, pieces[first : first + MAX_PIECES_PER_CALL])


def _move_some(call: VmCall, pid: int, begin: int, pieces: Sequence[MemoryPiece]) -> None:
    """Move some pieces; one call may move fewer bytes than were asked for (2 GiB at most)."""
    left = list(pieces)
    while left:
        local = b"".join(IOVEC.pack(begin + piece.begin, piece.size) for piece in left)
        remote = b"".join(IOVEC.pack(piece.address, piece.size) for piece in left)
        count = ctypes.c_ulong(len(left))
        moved = int(getattr(_libc, call)(pid, local, count, remote, count, ctypes.c_ulong(0)))
        if moved <= 0:
            number = ctypes.get_errno()
            raise ProcessMemoryError(number, os.strerror(number))
        left = _rest(left, moved)


def _rest(pieces: list[MemoryPiece], moved: int) -> list[MemoryPiece]:
    """Return what is left when the first `moved` bytes are done."""
    for number, piece in enumerate(pieces):
        if moved < piece.size:
            rest = MemoryPiece(
                begin=piece.begin + moved, size=piece.size - moved, address=piece.address + moved
            )
            return [rest, *pieces[number + 1 :]]
        moved -= piece.size
    return []
