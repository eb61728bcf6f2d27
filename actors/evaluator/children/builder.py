"""The builder: imports a candidate without a device, so that its extensions are compiled.

It runs candidate code, confined like a runner, and leaves the built libraries in the candidate's
own folder.  The runner imports the same file later and finds them ready: nothing is rebuilt when
sources, flags and folder are the same.  Each candidate has a private folder, because a killed build
leaves a lock behind that would hang the next build in the same folder.

Another builder, which never imports a candidate, prepares toolkits for fast builds.  Its own folder
is the folder of the toolkits.
"""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

from actors.evaluator.children.exception_reports import describe_exception
from actors.evaluator.children.source_import import import_candidate
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

MAX_PRECOMPILED_HEADERS = 24  # each takes up to 200 MB of disk


def serve(descriptor: int) -> None:
    """Answer the judge's orders until `Exit`, or until the judge is gone."""
    # A build runs no kernel and must not use the card, where another candidate is measured.
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
                import_candidate(order.source, order.modules)
            except BaseException as error:  # noqa: BLE001  # the candidate's own: reported
                answer = describe_exception(error)
        elif isinstance(order, PrepareToolkit):
            answer = prepare_toolkit(order)
        channel.send(answer)
        if isinstance(order, Exit):
            return


def prepare_toolkit(order: PrepareToolkit) -> ToolkitPrepared:
    """Make the toolkit and the precompiled headers that the working directory does not have."""
    from actors.evaluator.fastbuild import prepare_toolkit

    store = Path.cwd()
    with tempfile.TemporaryDirectory(prefix=UNFINISHED_PREFIX, dir=store) as scratch:
        tempfile.tempdir = scratch
        os.environ["TMPDIR"] = scratch
        try:
            try:
                toolkit = prepare_toolkit(
                    store, order.families, order.limit_s, most_headers=MAX_PRECOMPILED_HEADERS
                )
            except (PrecompiledHeaderError, BuildTimeoutError, OSError):
                # Builds work without a precompiled header, too.
                toolkit = prepare_toolkit(store, (), order.limit_s)
        except (ToolkitMissingError, PrecompiledHeaderError, BuildTimeoutError, OSError) as error:
            return ToolkitPrepared(words=f"{type(error).__name__}: {error}")
        finally:
            tempfile.tempdir = None
    return ToolkitPrepared(toolkit=toolkit.key)
