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

from actors.evaluator import sandbox
from actors.evaluator.isolation import cgroup, linux
from actors.evaluator.wire.orders import Confinement, Ended, Ready
from protocol.values import DeviceKind

TICK_MS = 100
SWEEP_S = 5.0
PIPE_BYTES = 4096
FAILED = 70  # a child whose own code failed; what was said is in its output


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """The descriptors that a child is born with."""

    channel: int
    output: int
    status: int
    leash: int


class World(NamedTuple):
    """What a child is put into."""

    ends: Ends
    confinement: Confinement
    ready: Ready
    device: DeviceKind
    group: cgroup.Group


def keep(
    ends: Ends,
    confinement: Confinement,
    ready: Ready,
    device: DeviceKind,
    part: Callable[[int], None],
) -> None:
    """Run `part(channel)` in a child of a child; return when its tree is gone and that is said."""
    if not confinement.isolated:
        ready = Ready()
    group = cgroup.Group(ready.groups, confinement.memory_bytes, confinement.processes)
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    if ready.namespaces:
        sandbox.separate(ready)
    tie_read, tie_write = os.pipe()
    word_read, word_write = os.pipe()
    first = os.fork()
    if not first:
        for unneeded in (tie_write, word_read, ends.status, ends.leash):
            os.close(unneeded)
        _first(World(ends, confinement, ready, device, group), part, (tie_read, word_write))
    for unneeded in (tie_read, word_write, ends.channel, ends.output):
        os.close(unneeded)
    _silence()
    killed = _watch(first, ends.leash)
    os.waitpid(first, 0)
    _sweep()
    word = os.read(word_read, PIPE_BYTES)
    ended = msgspec.json.decode(word, type=Ended) if word else Ended(how="lost")
    if killed:
        ended = msgspec.structs.replace(ended, how="killed")
    elif ended.how in ("signal", "lost") and group.starved():
        limit_mib = (confinement.memory_bytes or 0) >> 20
        ended = msgspec.structs.replace(ended, how="memory", number=limit_mib)
    group.close()
    os.write(ends.status, msgspec.json.encode(ended))


def _watch(first: int, leash: int) -> bool:
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


def _sweep() -> None:
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


def everybody() -> set[str]:
    """Return the names of all processes in /proc."""
    return {name for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208  # see _parent


def descendants(root: int, strangers: Set[str] = frozenset()) -> list[int]:
    """Return the living processes below `root`, zombies not counted.

    `strangers`: those that are known to be none, and are not looked at: a machine has hundreds.
    """
    children: dict[int, list[int]] = {}
    for name in everybody() - strangers:
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


def _silence() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


def _first(world: World, part: Callable[[int], None], ties: tuple[int, int]) -> NoReturn:
    """Be the first process: furnish the world, fork the child, say how it ended."""
    tie, word = ties
    ends, confinement, ready = world.ends, world.confinement, world.ready
    ended = Ended(how="lost")
    try:
        if ready.namespaces:
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        else:  # so that orphans come to us, and not to the keeper, whom nobody holds still
            linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        capped = ready.namespaces and sandbox.furnish(confinement, ready, world.device)
        child = os.fork()
        if not child:
            os.close(tie)
            os.close(word)
            _child(world, part)
        world.group.shut()
        os.close(ends.channel)
        os.close(ends.output)
        _silence()
        crowd = None if capped or not ready.namespaces else confinement.processes
        ended = _guard(child, tie, crowd)
    except OSError as error:
        os.write(2, f"the sandbox could not be set up: {error}\n".encode())
    os.write(word, msgspec.json.encode(ended))
    os._exit(0)


def _guard(child: int, tie: int, crowd: int | None) -> Ended:
    """Wait for the child, reaping what is orphaned onto us; at the tie's end, end too."""
    process = os.pidfd_open(child)
    poller = select.poll()
    poller.register(process, select.POLLIN)
    poller.register(tie, select.POLLIN)
    while True:
        poller.poll(TICK_MS)
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            peak_mib = usage.ru_maxrss // 1024
            if code < 0:
                return Ended(how="signal", number=-code, peak_mib=peak_mib)
            return Ended(how="exit", number=code, peak_mib=peak_mib)
        if crowd is not None and _crowd() > crowd:
            return Ended(how="crowd", number=crowd)
        if select.select([tie], [], [], 0)[0]:
            return Ended(how="killed")


def _crowd() -> int:
    return sum(entry.name.isdigit() for entry in Path("/proc").iterdir())


def _child(world: World, part: Callable[[int], None]) -> NoReturn:
    """Be the child: take the output for stdout and stderr, give up everything else, run."""
    ends = world.ends
    try:
        world.group.enter()
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(ends.output, 1)
        os.dup2(ends.output, 2)
        for unneeded in {null, ends.output} - {0, 1, 2}:
            os.close(unneeded)
        sandbox.confine(world.confinement, world.ready, world.device)
        # Last of all: giving up privileges would forget it.
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        gc.unfreeze()
        part(ends.channel)
        _leave()
    except BaseException:  # noqa: BLE001  # the child's outermost line
        traceback.print_exc()
    os._exit(FAILED)


def _leave() -> NoReturn:
    """End as an interpreter does, threads and exit handlers included, but for tearing down torch.

    Taking every module apart costs half a second, in pages that are shared with the zygote.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as Python's own end does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError, OSError):  # closed by the candidate
            stream.flush()
    os._exit(0)
