"""The zygote: imported torch once, never ran anything with it, and forks every other child.

The judge talks to it over one channel on standard input.  It never initialises CUDA and never
starts a thread, so that a fork of it is as good as a fresh process, without the seconds that
importing torch takes.  When the judge is gone it waits until all children are, removes the scratch
folder, and leaves.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import traceback
import warnings
from pathlib import Path
from typing import NoReturn

from actors.evaluator.children import alone
from actors.evaluator.isolation import cgroup, linux, walls
from actors.evaluator.isolation.keeper import Ends, keep
from actors.evaluator.isolation.scratch import remove_all
from actors.evaluator.wire.channel import Channel, Closed, close_all
from actors.evaluator.wire.orders import Ready, Spawn

TICK_MS = 500


def warm() -> None:
    """Import what children need; nothing here may start a thread or touch a device."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    warnings.simplefilter("ignore")
    # Costs tens of milliseconds at the first module or the first closing of a child otherwise.

    from actors.evaluator.children import builder, referee, runner  # noqa: F401

    gc.collect()
    gc.freeze()  # children share these pages: a collection in one would copy them all


def serve(channel: Channel[Spawn], ready: Ready, scratch: Path) -> None:
    """Fork a keeper for every order until the judge is gone."""
    channel.send(ready)
    keepers: set[int] = set()
    poller = select.poll()
    poller.register(channel, select.POLLIN)
    while True:
        _reap(keepers)
        if not poller.poll(TICK_MS):
            continue
        try:
            channel.pump()
            found = channel.next()
        except Closed:
            break
        while found is not None:
            order, carried = found
            keepers.add(_spawn(order, carried, channel, ready))
            close_all(carried)
            found = channel.next()
    for pid in keepers:
        os.waitpid(pid, 0)
    cgroup.leave(ready.groups)
    remove_all(scratch)


def _spawn(order: Spawn, carried: list[int], channel: Channel[Spawn], ready: Ready) -> int:
    pid = os.fork()
    if not pid:
        channel.close()  # with what came along for the next order: that is another child's
        _keep(order, carried, ready)
    return pid


def _keep(order: Spawn, carried: list[int], ready: Ready) -> NoReturn:
    from actors.evaluator.children import builder, referee, runner

    parts = {"runner": runner.serve, "referee": referee.serve, "builder": builder.serve}
    names = ("channel", "output", "status", "leash")
    ends = Ends(**dict(zip(names, carried, strict=True)))
    try:
        keep(
            ends,
            order.confinement,
            ready,
            order.device,
            lambda descriptor: (
                alone.replace(order.command, descriptor, order.device)
                if order.part == "tool"
                else parts[order.part](descriptor, order.device)
            ),
        )
    except BaseException:  # noqa: BLE001  # the keeper's outermost line
        traceback.print_exc()
    os._exit(0)


def _reap(keepers: set[int]) -> None:
    """Forget keepers that are done; kill what an ended keeper left to us."""
    while True:
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        keepers.discard(pid)


def main(arguments: list[str]) -> int:
    """Serve the judge at standard input; `arguments`: scratch folder, device, private folders."""
    scratch, device = Path(arguments[0]), arguments[1]
    # Until it can see that the judge is gone, it must be told (importing takes seconds).
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end = socket.socket(fileno=os.dup(0))
    end.set_inheritable(False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.chdir(scratch)
    warm()
    ready = walls.probe("cuda" if device == "cuda" else "cpu", scratch, tuple(arguments[2:]))
    linux.prctl(linux.PR_SET_PDEATHSIG, 0)
    serve(Channel(end, Spawn, descriptors=True), ready, scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
