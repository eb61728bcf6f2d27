"""The keeper of one child: forked by the zygote, it makes the child's world and ends it whole.

Three processes: the keeper, in our namespaces; the first process, pid 1 of the child's own pid
namespace where there is one; and the child, which runs the part.  The judge alone holds the other
end of the leash: when it lets go, by will or by dying, the keeper kills everything.  The keeper
says how the child ended only after its whole tree is gone.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Set
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec

from actors.evaluator.ipc.orders import ChildEnded, Confinement, ZygoteReady
from actors.evaluator.sandbox import cgroup, linux, sandbox
from protocol.values import DeviceKind

POLL_MS = 100
SWEEP_S = 5.0
PIPE_BYTES = 4096
EXIT_CHILD_FAILED = 70  # a child whose own code failed; what was said is in its output


class ChildDescriptors(msgspec.Struct, frozen=True, kw_only=True):
    """The descriptors that a child is born with."""

    channel: int
    output: int
    status: int
    leash: int


class ChildWorld(NamedTuple):
    """What a child is put into."""

    descriptors: ChildDescriptors
    confinement: Confinement
    ready: ZygoteReady
    device: DeviceKind
    group: cgroup.ChildCgroup


def supervise_child(
    descriptors: ChildDescriptors,
    confinement: Confinement,
    ready: ZygoteReady,
    device: DeviceKind,
    part: Callable[[int], None],
) -> None:
    """Run `part(channel)` in a child of a child; return when its tree is gone and that is said."""
    if not confinement.isolated:
        ready = ZygoteReady()
    group = cgroup.ChildCgroup(ready.groups, confinement.memory_bytes, confinement.processes)
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    if ready.namespaces:
        sandbox.unshare_namespaces(ready)
    tie_read, tie_write = os.pipe()
    word_read, word_write = os.pipe()
    first = os.fork()
    if not first:
        for unneeded in (tie_write, word_read, descriptors.status, descriptors.leash):
            os.close(unneeded)
        _run_as_pid1(
            ChildWorld(descriptors, confinement, ready, device, group), part, (tie_read, word_write)
        )
    for unneeded in (tie_read, word_write, descriptors.channel, descriptors.output):
        os.close(unneeded)
    _redirect_to_null()
    killed = _wait_for_first(first, descriptors.leash)
    os.waitpid(first, 0)
    _kill_descendants()
    word = os.read(word_read, PIPE_BYTES)
    ended = msgspec.json.decode(word, type=ChildEnded) if word else ChildEnded(how="lost")
    if killed:
        ended = msgspec.structs.replace(ended, how="killed")
    elif ended.how in ("signal", "lost") and group.ran_out_of_memory():
        limit_mib = (confinement.memory_bytes or 0) >> 20
        ended = msgspec.structs.replace(ended, how="memory", number=limit_mib)
    group.close()
    os.write(descriptors.status, msgspec.json.encode(ended))


def _wait_for_first(first: int, leash: int) -> bool:
    """Wait until the first process ends, or kill it when the judge lets go; say which."""
    process = os.pidfd_open(first)
    poller = select.poll()
    poller.register(process, select.POLLIN)
    poller.register(leash, select.POLLIN)
    ready = [descriptor for descriptor, _event in poller.poll()]
    if process in ready:
        return False
    os.kill(first, signal.SIGKILL)
    return True


def _kill_descendants() -> None:
    """Kill all that was orphaned onto us, until nothing is left."""
    until = time.monotonic() + SWEEP_S
    while time.monotonic() < until:
        left = descendants(os.getpid())
        for pid in left:
            _kill(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            if not left:
                return
        time.sleep(0.002)


def all_process_names() -> set[str]:
    """Return the names of all processes in /proc."""
    return {name for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208  # see _parent


def descendants(root: int, ignored: Set[str] = frozenset()) -> list[int]:
    """Return the living processes below `root`, zombies not counted.

    `ignored`: those that are known to be none, and are not looked at: a machine has hundreds.
    """
    children: dict[int, list[int]] = {}
    for name in all_process_names() - ignored:
        children.setdefault(_parent(name), []).append(int(name))
    found: list[int] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found.extend(below)
        todo.extend(below)
    return found


def _parent(pid: str) -> int:
    # Twice as fast as a Path's ways; the race asks before each of its windows.
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
        state, parent, threads = fields[0], int(fields[1]), int(fields[17])
    except (OSError, ValueError, IndexError):
        return 0
    # A process whose first thread has ended is a zombie to look at, and others of it may run.
    return 0 if state == b"X" or (state == b"Z" and threads < 2) else parent


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _redirect_to_null() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


def _run_as_pid1(
    world: ChildWorld, part: Callable[[int], None], pipes: tuple[int, int]
) -> NoReturn:
    """Be the first process: furnish the world, fork the child, say how it ended."""
    tie, word = pipes
    descriptors, confinement, ready = world.descriptors, world.confinement, world.ready
    ended = ChildEnded(how="lost")
    try:
        if ready.namespaces:
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        else:  # so that orphans come to us, and not to the keeper, whom nobody holds still
            linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        capped = ready.namespaces and sandbox.mount_filesystem(confinement, ready, world.device)
        child = os.fork()
        if not child:
            os.close(tie)
            os.close(word)
            _run_child(world, part)
        world.group.close_descriptors()
        os.close(descriptors.channel)
        os.close(descriptors.output)
        _redirect_to_null()
        crowd = None if capped or not ready.namespaces else confinement.processes
        ended = _wait_for_child(child, tie, crowd)
    except OSError as error:
        os.write(2, f"the sandbox could not be set up: {error}\n".encode())
    os.write(word, msgspec.json.encode(ended))
    os._exit(0)


def _wait_for_child(child: int, tie: int, crowd: int | None) -> ChildEnded:
    """Wait for the child, reaping what is orphaned onto us; at the tie's end, end too."""
    process = os.pidfd_open(child)
    poller = select.poll()
    poller.register(process, select.POLLIN)
    poller.register(tie, select.POLLIN)
    while True:
        poller.poll(POLL_MS)
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            peak_mib = usage.ru_maxrss // 1024
            if code < 0:
                return ChildEnded(how="signal", number=-code, peak_mib=peak_mib)
            return ChildEnded(how="exit", number=code, peak_mib=peak_mib)
        if crowd is not None and _process_count() > crowd:
            return ChildEnded(how="crowd", number=crowd)
        if select.select([tie], [], [], 0)[0]:
            return ChildEnded(how="killed")


def _process_count() -> int:
    return sum(entry.name.isdigit() for entry in Path("/proc").iterdir())


def _run_child(world: ChildWorld, part: Callable[[int], None]) -> NoReturn:
    """Be the child: take the output for stdout and stderr, give up everything else, run."""
    descriptors = world.descriptors
    try:
        world.group.enter()
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(descriptors.output, 1)
        os.dup2(descriptors.output, 2)
        for unneeded in {null, descriptors.output} - {0, 1, 2}:
            os.close(unneeded)
        sandbox.confine(world.confinement, world.ready, world.device)
        # Last of all: giving up privileges would forget it.
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        gc.unfreeze()
        part(descriptors.channel)
        _exit_interpreter()
    except BaseException:  # noqa: BLE001  # the child's outermost line
        traceback.print_exc()
    os._exit(EXIT_CHILD_FAILED)


def _exit_interpreter() -> NoReturn:
    """End as an interpreter does, threads and exit handlers included, but for tearing down torch.

    Taking every module apart costs half a second, in pages that are shared with the zygote.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as Python's own end does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError, OSError):  # closed by the candidate
            stream.flush()
    os._exit(0)
