"""The init process of one child: the zygote forks it; it makes the sandbox and ends the tree.

Three processes take part: the init process, in the judge's namespaces; the first process, which is
pid 1 of the child's own pid namespace where there is one; the child, which runs its role's code.

The lifeline is a pipe whose other end only the judge holds.  When the judge closes it, or dies, the
init process kills the whole tree.  It reports how the child ended after the whole tree is gone.
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
from collections.abc import Callable
from typing import NamedTuple, NoReturn

import msgspec

from actors import procfs
from actors.evaluator.ipc.orders import ChildEnded, Confinement, ZygoteReady
from actors.evaluator.sandbox import cgroup, sandbox
from actors.prctl import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, prctl
from protocol.values import DeviceKind

POLL_MS = 100
SWEEP_S = 5.0
PIPE_BYTES = 4096
EXIT_CHILD_FAILED = 70  # the child's own code failed; its output has the traceback


class ChildDescriptors(msgspec.Struct, frozen=True, kw_only=True):
    """The descriptors that a child is forked with."""

    channel: int
    output: int
    status: int
    lifeline: int


class ChildWorld(NamedTuple):
    """A child's surroundings: descriptors, limits, device and control group."""

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
    serve: Callable[[int], None],
) -> None:
    """Run `serve(channel)` in a grandchild; return when its tree is gone and that is reported."""
    if not confinement.isolated:
        ready = ZygoteReady()
    group = cgroup.ChildCgroup(ready.groups, confinement.memory_bytes, confinement.processes)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if ready.namespaces:
        sandbox.unshare_namespaces(ready)
    init_read, init_write = os.pipe()  # the first process sees the init process's end here
    report_read, report_write = os.pipe()
    first = os.fork()
    if not first:
        for unneeded in (init_write, report_read, descriptors.status, descriptors.lifeline):
            os.close(unneeded)
        world = ChildWorld(descriptors, confinement, ready, device, group)
        _run_as_pid1(world, serve, (init_read, report_write))
    for unneeded in (init_read, report_write, descriptors.channel, descriptors.output):
        os.close(unneeded)
    _redirect_to_null()
    killed = _wait_for_first(first, descriptors.lifeline)
    os.waitpid(first, 0)
    _kill_descendants()
    report = os.read(report_read, PIPE_BYTES)
    ended = msgspec.json.decode(report, type=ChildEnded) if report else ChildEnded(how="lost")
    if killed:
        ended = msgspec.structs.replace(ended, how="killed")
    elif ended.how in ("signal", "lost") and group.ran_out_of_memory():
        limit_mib = (confinement.memory_bytes or 0) >> 20
        ended = msgspec.structs.replace(ended, how="memory", number=limit_mib)
    group.close()
    os.write(descriptors.status, msgspec.json.encode(ended))


def _wait_for_first(first: int, lifeline: int) -> bool:
    """Wait until the first process ends; kill it when the judge closes the lifeline.

    Return whether it was killed.
    """
    process = os.pidfd_open(first)
    poller = select.poll()
    poller.register(process, select.POLLIN)
    poller.register(lifeline, select.POLLIN)
    ready = [descriptor for descriptor, _event in poller.poll()]
    if process in ready:
        return False
    os.kill(first, signal.SIGKILL)
    return True


def _kill_descendants() -> None:
    """Kill all orphans that this process has inherited, until none is left."""
    until = time.monotonic() + SWEEP_S
    while time.monotonic() < until:
        left = procfs.living_descendants(os.getpid())
        for pid in left:
            _kill(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            if not left:
                return
        time.sleep(0.002)


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
    world: ChildWorld, serve: Callable[[int], None], pipes: tuple[int, int]
) -> NoReturn:
    """Be the first process: mount the child's file system, fork the child, report how it ended."""
    init_end, report = pipes
    descriptors, confinement, ready = world.descriptors, world.confinement, world.ready
    ended = ChildEnded(how="lost")
    try:
        if ready.namespaces:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        else:  # orphans come to this process; children of the init process would not be frozen
            prctl(PR_SET_CHILD_SUBREAPER, 1)
        capped = ready.namespaces and sandbox.mount_filesystem(confinement, ready, world.device)
        child = os.fork()
        if not child:
            os.close(init_end)
            os.close(report)
            _run_child(world, serve)
        world.group.close_descriptors()
        os.close(descriptors.channel)
        os.close(descriptors.output)
        _redirect_to_null()
        limit = None if capped or not ready.namespaces else confinement.processes
        ended = _wait_for_child(child, init_end, limit)
    except OSError as error:
        os.write(2, f"the sandbox could not be set up: {error}\n".encode())
    os.write(report, msgspec.json.encode(ended))
    os._exit(0)


def _wait_for_child(child: int, init_end: int, process_limit: int | None) -> ChildEnded:
    """Wait for the child's end, or for the init process's end, and reap orphans."""
    process = os.pidfd_open(child)
    poller = select.poll()
    poller.register(process, select.POLLIN)
    poller.register(init_end, select.POLLIN)
    while True:
        poller.poll(POLL_MS)
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            peak_mib = usage.ru_maxrss // 1024
            if code < 0:
                return ChildEnded(how="signal", number=-code, peak_mib=peak_mib)
            return ChildEnded(how="exit", number=code, peak_mib=peak_mib)
        if process_limit is not None and len(procfs.all_pids()) > process_limit:
            return ChildEnded(how="crowd", number=process_limit)
        if select.select([init_end], [], [], 0)[0]:
            return ChildEnded(how="killed")


def _run_child(world: ChildWorld, serve: Callable[[int], None]) -> NoReturn:
    """Be the child: use the output as stdout and stderr, give up everything else, serve."""
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
        # The last step: the kernel forgets this setting when a process gives up privileges.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        gc.unfreeze()
        serve(descriptors.channel)
        _exit_interpreter()
    except BaseException:  # noqa: BLE001  # the child's outermost line
        traceback.print_exc()
    os._exit(EXIT_CHILD_FAILED)


def _exit_interpreter() -> NoReturn:
    """End as an interpreter does, with threads and exit handlers, but without freeing modules.

    Freeing every module of torch costs half a second, in pages that are shared with the zygote.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as Python's own end does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError, OSError):  # closed by the candidate
            stream.flush()
    os._exit(0)
