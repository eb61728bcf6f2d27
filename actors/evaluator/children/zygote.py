"""The zygote: it has imported torch, runs next to nothing with it, and forks every other child.

The judge sends orders over one channel, on standard input.  The zygote never initialises CUDA and
never starts a thread, so that a fork of it is as good as a fresh process, without the seconds that
importing torch takes.  When the judge is gone, the zygote waits until all children are gone,
removes the scratch folder and ends.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from actors.evaluator.children import fresh_interpreter
from actors.evaluator.ipc.channel import Channel, ChannelClosedError, close_all
from actors.evaluator.ipc.orders import ChildRole, SpawnChild, ZygoteReady
from actors.evaluator.sandbox import cgroup, probe
from actors.evaluator.sandbox.init_process import ChildDescriptors, supervise_child
from actors.evaluator.sandbox.scratch import remove_all
from actors.prctl import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, prctl
from protocol.values import DeviceKind

POLL_MS = 500


def import_everything(kind: DeviceKind) -> None:
    """Import what children need; no import may start a thread or use a device."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    warnings.simplefilter("ignore")
    gc.disable()  # collections take a third of the imports' time, and find next to nothing
    # What torch imports at the first calls on the meta device.  Each referee would do it for the
    # memory that its task needs, which takes 0.6 s and more.
    import torch.fx.experimental.symbolic_shapes  # noqa: F401

    from actors.evaluator.children import triton_driver
    from actors.evaluator.children.tensors import vector_math

    compiling = triton_driver.start() if kind == "cuda" else None
    with _asking_no_driver():
        from actors.evaluator.children import builder, referee, runner, watched_runner  # noqa: F401

    vector_math.choose_kernels()  # before any child could do so with several threads
    triton_driver.keep(compiling)
    gc.freeze()  # children share these pages, and a collection in a child would copy all of them
    gc.enable()


@contextmanager
def _asking_no_driver() -> Iterator[None]:
    """Have imports find a device without a question to its driver.

    `torch.utils.cpp_extension` asks at its import.  For a part of a card (MIG) the answer
    initialises CUDA: then no fork can use the card.
    """
    import torch

    asked, torch.cuda.is_available = torch.cuda.is_available, lambda: True
    try:
        yield
    finally:
        torch.cuda.is_available = asked


def serve(channel: Channel[SpawnChild], ready: ZygoteReady, scratch: Path) -> None:
    """Fork an init process for every order until the judge is gone."""
    channel.send(ready)
    init_processes: set[int] = set()
    poller = select.poll()
    poller.register(channel, select.POLLIN)
    while True:
        _reap(init_processes)
        if not poller.poll(POLL_MS):
            continue
        try:
            channel.read_available()
            found = channel.next_order()
        except ChannelClosedError:
            break
        while found is not None:
            order, carried = found
            init_processes.add(_spawn(order, carried, channel, ready))
            close_all(carried)
            found = channel.next_order()
    for pid in init_processes:
        os.waitpid(pid, 0)
    cgroup.remove_own_groups(ready.groups)
    remove_all(scratch)


def _spawn(
    order: SpawnChild, carried: list[int], channel: Channel[SpawnChild], ready: ZygoteReady
) -> int:
    pid = os.fork()
    if not pid:
        channel.close()  # and with it descriptors of later orders, which are for other children
        _run_init_process(order, carried, ready)
    return pid


def _run_init_process(order: SpawnChild, carried: list[int], ready: ZygoteReady) -> NoReturn:
    names = ("channel", "output", "status", "lifeline")
    descriptors = ChildDescriptors(**dict(zip(names, carried, strict=True)))
    try:
        serve = _role_of(order)
        supervise_child(descriptors, order.confinement, ready, order.device, serve)
    except BaseException:  # noqa: BLE001  # the init process's outermost line
        traceback.print_exc()
    os._exit(0)


def _role_of(order: SpawnChild) -> Callable[[int], None]:
    """Return the function that a child runs with its channel's descriptor."""
    from actors.evaluator.children import builder, referee, runner, watched_runner

    device = order.device
    roles: dict[ChildRole, Callable[[int], None]] = {
        "runner": lambda channel: runner.serve(channel, device),
        "referee": lambda channel: referee.serve(channel, device),
        "watched runner": lambda channel: watched_runner.serve_watched(channel, device),
        "builder": builder.serve,
        "tool": lambda channel: fresh_interpreter.exec_with_tool(order.command, channel, device),
    }
    return roles[order.part]


def _reap(init_processes: set[int]) -> None:
    """Reap ended init processes and the orphans that they left to this process."""
    while True:
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        init_processes.discard(pid)


def _load_arena_allocator(folder: Path) -> None:
    """Compile what runners on a card need; a process that compiles can't be a runner's."""
    from actors.evaluator.children.tensors import arena_allocator

    arena_allocator.load(folder)


def main(arguments: list[str]) -> int:
    """Serve the judge on standard input; `arguments`: scratch folder, device, private folders."""
    scratch, device = Path(arguments[0]), arguments[1]
    # While it imports, for seconds, it can't see the judge's end: the kernel ends it then.
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end = socket.socket(fileno=os.dup(0))
    end.set_inheritable(False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.chdir(scratch)
    kind: DeviceKind = "cuda" if device == "cuda" else "cpu"
    with probe.probing(kind, scratch, tuple(arguments[2:])) as probed:
        # Trusted modules are compiled for the next start, too, where the installation has not done
        # that (uv does not): without that the imports take 2.5 times as long.
        sys.dont_write_bytecode = False
        import_everything(kind)
        sys.dont_write_bytecode = True
        if kind == "cuda":
            _load_arena_allocator(scratch)
        ready = probed()
    prctl(PR_SET_PDEATHSIG, 0)
    serve(Channel(end, SpawnChild, descriptors=True), ready, scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
