"""A runner whose calls are watched: one that does not end writes the stacks of all its threads.

It is forked like any runner, without a second import of torch.  On a card each launch waits for its
kernel, so that a kernel without an end stops the line that launches it.
"""

from __future__ import annotations

import faulthandler

from actors.evaluator.children.runner import Runner, serve
from actors.evaluator.ipc.runner_orders import CallOnce, FromRunner, ToRunner
from actors.evaluator.ipc.tool_process import STALLED_S
from protocol.values import DeviceKind


class WatchedRunner(Runner):
    """A runner that writes the stacks of its threads if a call does not end."""

    def answer(self, order: ToRunner, carried: list[int]) -> FromRunner:
        """Carry out `order`, watched if it is a call."""
        if not isinstance(order, CallOnce):
            return super().answer(order, carried)
        faulthandler.dump_traceback_later(STALLED_S)
        try:
            return super().answer(order, carried)
        finally:
            faulthandler.cancel_dump_traceback_later()


def serve_watched(descriptor: int, device: DeviceKind) -> None:
    """Answer the judge's orders as a runner does, watched."""
    serve(descriptor, device, WatchedRunner)
