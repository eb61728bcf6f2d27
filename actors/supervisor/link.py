"""The supervisor's own line to the coordinator: who died, and when to drain.

A coordinator may be dead or not yet there when a child dies, so every loss is kept and said again
to each new coordinator; saying one twice does no harm.
"""

from __future__ import annotations

import os
import secrets
from collections import deque

import zmq

from protocol import codec, transport
from protocol.messages import Beat, Drain, Hello, Lost, Message, Refuse, Welcome, Who
from protocol.values import Role

SLOT = "supervisor"
REMEMBERED = 64  # losses said again after a new coordinator's welcome


class Link:
    """A DEALER that never blocks; `pump` is called at every turn of the loop."""

    def __init__(self, address: str) -> None:
        self.refused = ""  # the coordinator's reason, when it would not have us
        self._codec = codec.to_worker()
        self._incarnation = secrets.token_hex(8)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = transport.connect(self._context, address, self._incarnation)
        self._monitor = transport.connections(self._socket)
        self._losses: deque[Lost] = deque(maxlen=REMEMBERED)
        self._draining = False
        self._beat_s = 5.0
        self._next_beat = 0.0

    @property
    def descriptors(self) -> tuple[int, int]:
        """What becomes readable when there may be something to pump."""
        return self._socket.FD, self._monitor.FD

    def pump(self, now: float) -> None:
        """Read all that has come, answer it, and beat when it is time."""
        if transport.drain_connections(self._monitor):
            self._hello()
        while self._socket.poll(0):
            frames = self._socket.recv_multipart(zmq.NOBLOCK)
            try:
                message = self._codec.decode(frames)
            except codec.BadFrame:
                continue  # whatever it was, it was not for us; losses are said again anyway
            self._heard(message)
        if now >= self._next_beat:
            self._next_beat = now + self._beat_s
            self._send(Beat(credit=0, doing="supervising"))

    def lost(self, slot: str, incarnation: str, how: str) -> None:
        """Tell the coordinator that a worker is dead."""
        loss = Lost(slot=slot, incarnation=incarnation, how=how)
        self._losses.append(loss)
        self._send(loss)

    def drain(self) -> None:
        """Ask the coordinator to end when what runs has ended; also the next one, if it dies."""
        self._draining = True
        self._send(Drain())

    def close(self) -> None:
        """Hang up."""
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)
        self._context.term()

    def _heard(self, message: Message) -> None:
        match message:
            case Welcome():
                self._beat_s = message.beat_s
                for loss in self._losses:
                    self._send(loss)
                if self._draining:
                    self._send(Drain())
            case Who():
                self._hello()
            case Refuse():
                self.refused = message.reason
            case _:
                pass  # work, receipts and retirement are for workers

    def _hello(self) -> None:
        self._send(
            Hello(
                role=Role.SUPERVISOR,
                slot=SLOT,
                incarnation=self._incarnation,
                pid=os.getpid(),
                credit=0,
            )
        )

    def _send(self, message: Message) -> None:
        try:
            self._socket.send_multipart(self._codec.encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return  # nobody is there; the next Welcome brings it up again
