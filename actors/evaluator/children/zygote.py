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

from actors.evaluator.children import fresh_interpreter
from actors.evaluator.ipc.channel import Channel, ChannelClosedError, close_all
from actors.evaluator.ipc.orders import SpawnChild, ZygoteReady
from actors.evaluator.sandbox import cgroup, linux, probe
from actors.evaluator.sandbox.init_process import ChildDescriptors, supervise_child
from actors.evaluator.sandbox.scratch import remove_all

POLL_MS = 500


def import_everything() -> None:
    """Import what children need; nothing here may start a thread or touch a device."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    warnings.simplefilter("ignore")
    # Costs tens of milliseconds at the first module or the first closing of a child otherwise.

    from actors.evaluator.children import builder, referee, runner  # noqa: F401

    gc.collect()
    gc.freeze()  # children share these pages: a collection in one would copy them all


def serve(channel: Channel[SpawnChild], ready: ZygoteReady, scratch: Path) -> None:
    """Fork a keeper for every order until the judge is gone."""
    channel.send(ready)
    keepers: set[int] = set()
    poller = select.poll()
    poller.register(channel, select.POLLIN)
    while True:
        _reap(keepers)
        if not poller.poll(POLL_MS):
            continue
        try:
            channel.read_available()
            found = channel.next_order()
        except ChannelClosedError:
            break
        while found is not None:
            order, carried = found
            keepers.add(_spawn(order, carried, channel, ready))
            close_all(carried)
            found = channel.next_order()
    for pid in keepers:
        os.waitpid(pid, 0)
    cgroup.remove_own_groups(ready.groups)
    remove_all(scratch)


def _spawn(
    order: SpawnChild, carried: list[int], channel: Channel[SpawnChild], ready: ZygoteReady
) -> int:
    pid = os.fork()
    if not pid:
        channel.close()  # with what came along for the next order: that is another child's
        _keep(order, carried, ready)
    return pid


def _keep(order: SpawnChild, carried: list[int], ready: ZygoteReady) -> NoReturn:
    from actors.evaluator.children import builder, referee, runner

    parts = {"runner": runner.serve, "referee": referee.serve, "builder": builder.serve}
    names = ("channel", "output", "status", "leash")
    descriptors = ChildDescriptors(**dict(zip(names, carried, strict=True)))
    try:
        supervise_child(
            descriptors,
            order.confinement,
            ready,
            order.device,
            lambda descriptor: (
                fresh_interpreter.exec_with_tool(order.command, descriptor, order.device)
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
    import_everything()
    ready = probe.probe_sandbox(
        "cuda" if device == "cuda" else "cpu", scratch, tuple(arguments[2:])
    )
    linux.prctl(linux.PR_SET_PDEATHSIG, 0)
    serve(Channel(end, SpawnChild, descriptors=True), ready, scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
