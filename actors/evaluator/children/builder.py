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

from actors.evaluator.children import beside, takeover
from actors.evaluator.children.faults import raised
from actors.evaluator.children.runner import import_file
from actors.evaluator.fastbuild.precompiled import Broken
from actors.evaluator.fastbuild.process import TooLong
from actors.evaluator.fastbuild.store import HALF
from actors.evaluator.fastbuild.toolkit import Unprepared
from actors.evaluator.wire.channel import Channel, Closed, close_all
from actors.evaluator.wire.orders import Done, Furnish, Furnished, Import, Leave, ToBuilder
from actors.evaluator.wire.runner_orders import FromRunner
from protocol.values import DeviceKind

MOST_HEADERS = 24  # precompiled, each up to 200 MB of disk


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
        except Closed:
            os._exit(0)
        close_all(carried)
        answer: FromRunner | Furnished = Done()
        if isinstance(order, Import):
            try:
                takeover.take(order.source)
                beside.lay_out(order.modules)
                import_file(order.source, "candidate")
            except BaseException as error:  # noqa: BLE001  # the candidate's: data
                answer = raised(error)
        elif isinstance(order, Furnish):
            answer = furnished(order)
        channel.send(answer)
        if isinstance(order, Leave):
            return


def furnished(order: Furnish) -> Furnished:
    """Make the toolkit and the precompiled headers that the working directory lacks."""
    from actors.evaluator.fastbuild.workshop import prepare

    store = Path.cwd()
    with tempfile.TemporaryDirectory(prefix=HALF, dir=store) as scratch:
        tempfile.tempdir = scratch
        os.environ["TMPDIR"] = scratch
        try:
            toolkit = prepare(store, (), order.limit_s)
            if toolkit.precompiled.count() < MOST_HEADERS:
                with contextlib.suppress(Broken, TooLong, OSError):  # built without, then
                    prepare(store, order.families, order.limit_s)
        except (Unprepared, Broken, TooLong, OSError) as error:
            return Furnished(words=f"{type(error).__name__}: {error}")
        finally:
            tempfile.tempdir = None
    return Furnished(toolkit=toolkit.key)
