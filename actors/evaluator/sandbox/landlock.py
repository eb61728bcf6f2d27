"""Landlock: the kernel's limit on the files that a process and all its children may open.

It needs no privilege.  From ABI 3 on (Linux 6.2) it covers every kind of write; from ABI 4 on it
also refuses TCP, and from ABI 6 on signals to processes outside.  It does not hide that a file
exists, nor the file's metadata.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

from actors.evaluator.sandbox import linux
from actors.prctl import PR_SET_NO_NEW_PRIVS, prctl

MIN_ABI = 3  # before it, a process could truncate files outside

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_BLOCK = 1 << 6, 1 << 11
REFER = 1 << 13  # rename and link from folder to folder
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
ALL_RIGHTS = {3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

READ_RIGHTS = EXECUTE | READ_FILE | READ_DIR
WRITE_RIGHTS = READ_RIGHTS | WRITE_FILE | TRUNCATE
DEVICE_RIGHTS = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV
OWN_FOLDER_RIGHTS = ALL_RIGHTS[5] & ~(MAKE_CHAR | MAKE_BLOCK)

TCP_RIGHTS = 3  # bind, connect
SCOPES = 3  # abstract sockets, signals
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on every architecture
VERSION_FLAG, PATH_BENEATH = 1, 1


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scope", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def abi() -> int:
    """Return the kernel's version of landlock; 0 where it has none."""
    return max(0, linux.syscall(CREATE_RULESET, None, 0, VERSION_FLAG))


def restrict(rules: Iterable[tuple[str, int]], *, tcp: bool = False) -> None:
    """Allow for good only what `rules` (path, access) list; `tcp`: allow TCP, too."""
    version = abi()
    if version < MIN_ABI:
        raise OSError(f"landlock's ABI is {version}, needed is {MIN_ABI}")
    handled = ALL_RIGHTS[min(version, 5)]
    ruleset = _Ruleset(
        handled, TCP_RIGHTS if version >= 4 and not tcp else 0, SCOPES if version >= 6 else 0
    )
    size = 8 if version < 4 else 16 if version < 6 else 24
    made = linux.checked_syscall(CREATE_RULESET, ctypes.byref(ruleset), size, 0)
    try:
        for path, access in rules:
            _allow(made, path, access & handled)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        linux.checked_syscall(RESTRICT_SELF, made, 0)
    finally:
        os.close(made)


def enter_inner_domain() -> None:
    """Enter a domain inside the present one, with the same access to files.

    A process in it can't reach the descriptors and the memory of processes outside of it, not even
    of its parent.
    """
    # A ruleset must handle something: making block devices, which no confined process may do.  What
    # a ruleset does not allow of renames it refuses, whether it handles them or not: Triton writes
    # its cache in folders of its own.
    ruleset = _Ruleset(MAKE_BLOCK | REFER, 0, 0)
    made = linux.checked_syscall(CREATE_RULESET, ctypes.byref(ruleset), 8, 0)
    try:
        _allow(made, "/", REFER)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        linux.checked_syscall(RESTRICT_SELF, made, 0)
    finally:
        os.close(made)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # the path is missing or closed to this user: there is nothing to allow
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            access &= FILE_RIGHTS
        beneath = _Beneath(access, place)
        linux.checked_syscall(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(beneath), 0)
    finally:
        os.close(place)
