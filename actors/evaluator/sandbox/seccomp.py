"""The deny-list of system calls: a filter that a process puts on itself and on all its children.

A denied call fails with EPERM.  `clone3` fails with ENOSYS, so that the C library uses `clone`,
whose flags the filter can read.  A call of another architecture (32 bit, x32) kills the process.
The filter needs NO_NEW_PRIVS and cannot be removed.  It permits what compilers, Python, torch, CUDA
and Triton use.  It does not follow pointers, and it does not limit files: landlock does.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

from actors.evaluator.sandbox import linux
from actors.prctl import PR_SET_NO_NEW_PRIVS, prctl

# name: (x86_64, aarch64); None where the architecture has no such call
DENIED: dict[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # the network, and sockets on a path: docker's, our own coordinator's
    "connect": (42, 203),
    # the kernel itself
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "syslog": (103, 116),
    "lookup_dcookie": (212, 18),
    "memfd_secret": (447, 447),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
    "uselib": (134, None),
    "sysfs": (139, None),
    # keys that outlive a process
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # mounts and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    # files by handle, which no rule on paths covers
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    # the machine
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "nfsservctl": (180, 42),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    # memory that outlives a process where there is no ipc namespace
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
}
CLONE, CLONE3 = (56, 220), (435, 435)
PERSONALITY, SOCKET, PRLIMIT = (135, 92), (41, 198), (302, 261)
SOCKET_PAIR = (53, 199)
NEW_NAMESPACE_FLAGS = 0x7E020080  # CLONE_NEW*: user, pid, net, ipc, uts, cgroup, mount, time
AF_UNIX = 1
SOCK_DGRAM, TYPES = 2, 0xF  # a datagram socket sends to any address without a connection
PERSONALITIES = (0, 0xFFFFFFFF)  # the ordinary one, and the query for the present one

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
SECCOMP = {"x86_64": 317, "aarch64": 277}
X32 = 0x40000000

LOAD, JUMP, JUMP_EQUAL, JUMP_ABOVE, JUMP_ANY, RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
AND = 0x54
# Offsets in seccomp_data (low half: +0).
NUMBER, ARCHITECTURE, ARGUMENT, SECOND_ARGUMENT = 0, 4, 16, 24
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
SET_MODE_FILTER = 1
SPEC_ALLOW = 4  # without it older kernels slow down every branch, and timings would be wrong
Instruction = tuple[int, int, int, int]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def is_supported() -> bool:
    """Whether there is a deny-list for this architecture."""
    return platform.machine() in MACHINES


def _deny(error: int = errno.EPERM) -> Instruction:
    return (RETURN, 0, 0, ERRNO | error)


def _on_call(number: int, then: list[Instruction]) -> list[Instruction]:
    """Run `then`, which ends in a return, for one call.  The call's number must be loaded."""
    return [(JUMP_EQUAL, 0, len(then), number), *then]


def program(machine: str, *, own_network: bool = False, alone: bool = False) -> bytes:
    """Return the filter for `machine` as the kernel reads it.

    `own_network`: the process has a network namespace of its own and may make and connect sockets.
    `alone`: no Unix socket of another process is visible, so datagrams reach no other process.
    """
    which, architecture = MACHINES[machine]
    first = (LOAD, 0, 0, ARGUMENT)
    code: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
    ]
    if machine == "x86_64":
        code += [(JUMP_ABOVE, 0, 1, X32), (RETURN, 0, 0, KILL)]
    allow: Instruction = (RETURN, 0, 0, ALLOW)
    code += _on_call(CLONE[which], [first, (JUMP_ANY, 0, 1, NEW_NAMESPACE_FLAGS), _deny(), allow])
    code += _on_call(CLONE3[which], [_deny(errno.ENOSYS)])
    if not own_network:
        kind = [] if alone else [(LOAD, 0, 0, SECOND_ARGUMENT), (AND, 0, 0, TYPES)]
        if kind:
            kind += [(JUMP_EQUAL, 0, 1, SOCK_DGRAM), _deny()]
            code += _on_call(SOCKET_PAIR[which], [*kind, allow])
        unix = [first, (JUMP_EQUAL, 1, 0, AF_UNIX), _deny(), *kind, allow]
        code += _on_call(SOCKET[which], unix)
    # A process may read and set only its own limits: pid 0 means itself.
    code += _on_call(PRLIMIT[which], [first, (JUMP_EQUAL, 1, 0, 0), _deny(), allow])
    ordinary, question = PERSONALITIES
    code += _on_call(
        PERSONALITY[which],
        [first, (JUMP_EQUAL, 2, 0, ordinary), (JUMP_EQUAL, 1, 0, question), _deny(), allow],
    )
    for name, numbers in DENIED.items():
        number = numbers[which]
        if number is not None and not (own_network and name == "connect"):
            code += _on_call(number, [_deny()])
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in [*code, allow])


def install(*, own_network: bool = False, alone: bool = False) -> None:
    """Put the filter for good on this thread and on everything that it starts."""
    machine = platform.machine()
    if machine not in MACHINES:
        raise OSError(errno.ENOSYS, f"no list of system calls for {machine}")
    text = program(machine, own_network=own_network, alone=alone)
    held = ctypes.create_string_buffer(text, len(text))
    filled = _Program(len(text) // 8, ctypes.addressof(held))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    arguments = (SET_MODE_FILTER, SPEC_ALLOW, ctypes.byref(filled))
    if linux.syscall(SECCOMP[machine], *arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
