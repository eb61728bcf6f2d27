"""The Linux calls that Python does not offer: namespaces, mounts, capabilities.

Each raises OSError as the rest of `os` does.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import socket
import struct
from pathlib import Path

from actors.prctl import PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, prctl

NEW_NS = 0x00020000
NEW_IPC = 0x08000000
NEW_USER = 0x10000000
NEW_PID = 0x20000000
NEW_NET = 0x40000000

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 0x4000, 0x40000
MOUNT_READ_ONLY = 1
SYS_MOUNT_SETATTR = 442  # the same number on every architecture
AT_RECURSIVE = 0x8000
AT_FDCWD = -100

SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
CAPABILITY_VERSION_3 = 0x20080522

SET_INTERFACE_FLAGS, INTERFACE_UP = 0x8914, 0x1 | 0x40  # up and running

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns", ctypes.c_uint64),
    )


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(number: int, *arguments: object) -> int:
    """Make a system call by number; -1 and ctypes' errno where it fails."""
    longs = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return int(_libc.syscall(ctypes.c_long(number), *longs))


def checked_syscall(number: int, *arguments: object) -> int:
    """Make a system call by number; raise OSError where it fails."""
    return _checked(syscall(number, *arguments), f"system call {number}")


def unshare(flags: int) -> None:
    """Leave the namespaces in `flags` for new ones."""
    _checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Mount `source` on `target`."""
    options = data.encode() or None
    _checked(
        _libc.mount(
            source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options
        ),
        f"mount on {target}",
    )


def set_read_only(path: str, *, read_only: bool, recursive: bool) -> None:
    """Make the mount at `path` read-only, or writable again."""
    attributes = _MountAttributes()
    if read_only:
        attributes.set = MOUNT_READ_ONLY
    else:
        attributes.clear = MOUNT_READ_ONLY
    _checked(
        _libc.syscall(
            SYS_MOUNT_SETATTR,
            AT_FDCWD,
            path.encode(),
            AT_RECURSIVE if recursive else 0,
            ctypes.byref(attributes),
            ctypes.sizeof(attributes),
        ),
        f"mount_setattr on {path}",
    )


def map_user(uid: int, gid: int) -> None:
    """In a fresh user namespace: map our user and group to themselves."""
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", encoding="ascii")


def drop_capabilities() -> None:
    """Give up every capability for good, through exec too."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # past the last capability, or not permitted to drop any
    number = SYS_CAPSET.get(platform.machine())
    if number is not None:
        header = _CapabilityHeader(CAPABILITY_VERSION_3, 0)
        none = (ctypes.c_uint32 * 6)()
        _checked(_libc.syscall(number, ctypes.byref(header), ctypes.byref(none)), "capset")


def raise_loopback() -> None:
    """Make 127.0.0.1 reachable inside a fresh network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        request = struct.pack("16sH14x", b"lo", INTERFACE_UP)
        fcntl.ioctl(end, SET_INTERFACE_FLAGS, request)


def request_tracing() -> int:
    """Ask to be traced by the parent, as a debugger's child does; 0 where the kernel permits it."""
    return int(_libc.ptrace(0, 0, None, None))


def cuda_error() -> int:
    """Start CUDA's driver in this process; return 0, or a number that fits an exit status."""
    number = int(ctypes.CDLL("libcuda.so.1").cuInit(0))
    return 0 if number == 0 else 1 + number % 100
