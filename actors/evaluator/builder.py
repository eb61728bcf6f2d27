"""The builder: imports a candidate where there is no device, so that what it compiles is built.

It runs candidate code, confined like a runner, and leaves the built libraries in the candidate's
own folder; the runner imports the same file later and finds them ready (torch rebuilds nothing when
sources, flags and folder are the same).  A private folder for each candidate: a killed build leaves
a lock behind that would hang the next one.
"""

from __future__ import annotations

import os
import socket

from actors.evaluator.channel import Channel, Closed, close_all
from actors.evaluator.faults import raised
from actors.evaluator.orders import Done, FromRunner, Import, Leave, ToRunner
from actors.evaluator.runner import import_file
from protocol.values import DeviceKind


def serve(descriptor: int, device: DeviceKind) -> None:
    """Import what the judge sends, once, and leave."""
    # Nothing is run here, and a build must not need the card that another candidate is on.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    channel: Channel[ToRunner] = Channel(
        socket.socket(fileno=descriptor), ToRunner, descriptors=True
    )
    while True:
        try:
            order, carried = channel.receive()
        except Closed:
            os._exit(0)
        close_all(carried)
        answer: FromRunner = Done()
        if isinstance(order, Import):
            try:
                import_file(order.source, "candidate")
            except BaseException as error:  # noqa: BLE001  # the candidate's: data
                answer = raised(error)
        channel.send(answer)
        if isinstance(order, Leave):
            return
