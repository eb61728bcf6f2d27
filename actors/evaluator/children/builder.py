"""The builder: imports a candidate where there is no device, so that what it compiles is built.

It runs candidate code, confined like a runner, and leaves the built libraries in the candidate's
own folder; the runner imports the same file later and finds them ready (nothing is rebuilt when
sources, flags and folder are the same).  A private folder for each candidate: a killed build leaves
a lock behind that would hang the next one.

Another one, which never sees a candidate, prepares what fast builds need: its own folder is the
toolkits'.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from pathlib import Path

from actors.evaluator.children import fast_build_hook, task_dependencies
from actors.evaluator.children.exception_reports import describe_exception
from actors.evaluator.children.runner import import_file
from actors.evaluator.fastbuild import (
    UNFINISHED_PREFIX,
    BuildTimeoutError,
    PrecompiledHeaderError,
    ToolkitMissingError,
)
from actors.evaluator.ipc.channel import Channel, ChannelClosedError, close_all
from actors.evaluator.ipc.orders import (
    Done,
    Exit,
    ImportSource,
    PrepareToolkit,
    ToBuilder,
    ToolkitPrepared,
)
from actors.evaluator.ipc.runner_orders import FromRunner
from protocol.values import DeviceKind

MAX_PRECOMPILED_HEADERS = 24  # precompiled, each up to 200 MB of disk


def serve(descriptor: int, device: DeviceKind) -> None:
    """Do the one thing that the judge orders, and leave."""
    # Nothing is run here, and a build must not need the card that another candidate is on.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    channel: Channel[ToBuilder] = Channel(
        socket.socket(fileno=descriptor), ToBuilder, descriptors=True
    )
    while True:
        try:
            order, carried = channel.receive()
        except ChannelClosedError:
            os._exit(0)
        close_all(carried)
        answer: FromRunner | ToolkitPrepared = Done()
        if isinstance(order, ImportSource):
            try:
                fast_build_hook.install_fast_builds(order.source)
                task_dependencies.write_dependencies(order.modules)
                import_file(order.source, "candidate")
            except BaseException as error:  # noqa: BLE001  # the candidate's: data
                answer = describe_exception(error)
        elif isinstance(order, PrepareToolkit):
            answer = prepare_toolkit(order)
        channel.send(answer)
        if isinstance(order, Exit):
            return


def prepare_toolkit(order: PrepareToolkit) -> ToolkitPrepared:
    """Make the toolkit and the precompiled headers that the working directory lacks."""
    from actors.evaluator.fastbuild import prepare_toolkit

    store = Path.cwd()
    with tempfile.TemporaryDirectory(prefix=UNFINISHED_PREFIX, dir=store) as scratch:
        tempfile.tempdir = scratch
        os.environ["TMPDIR"] = scratch
        try:
            toolkit = prepare_toolkit(store, (), order.limit_s)
            if toolkit.precompiled.count() < MAX_PRECOMPILED_HEADERS:
                with contextlib.suppress(
                    PrecompiledHeaderError, BuildTimeoutError, OSError
                ):  # built without, then
                    prepare_toolkit(store, order.families, order.limit_s)
        except (ToolkitMissingError, PrecompiledHeaderError, BuildTimeoutError, OSError) as error:
            return ToolkitPrepared(words=f"{type(error).__name__}: {error}")
        finally:
            tempfile.tempdir = None
    return ToolkitPrepared(toolkit=toolkit.key)
