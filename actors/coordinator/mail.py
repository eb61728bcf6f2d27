"""The coordinator's post: frames in, frames out, nothing told before it is durable.

Peers are called by their socket's name, which must be the incarnation that they say Hello with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import zmq
from structlog.typing import FilteringBoundLogger

from actors import failpoints
from actors.coordinator.doorkeeper import Doorkeeper
from actors.coordinator.origin import LOCAL, Origin
from protocol import codec, messages
from protocol.messages import Message

ROUND_MESSAGES = 500
# As plain numbers: pyzmq's own flags are an enum, and an enum's `|` costs more than a send.
MORE = int(zmq.NOBLOCK) | int(zmq.SNDMORE)
LAST = int(zmq.NOBLOCK)


class Mail:
    """One ROUTER socket, with an outbox that is emptied after the commit."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        log: FilteringBoundLogger,
        knows: Callable[[str], bool] = lambda _name: False,
        door: Doorkeeper | None = None,
    ) -> None:
        self._socket = socket
        self._knows = knows
        self._log = log
        self._door = door
        self._codec = codec.to_coordinator()
        self._outbox: list[tuple[str, Message]] = []
        self.empty = True  # whether the last read left nothing waiting

    def wait(self, seconds: float) -> None:
        """Return when something has arrived, or after `seconds`."""
        self._socket.poll(max(0, int(seconds * 1000)))

    def read(self) -> Iterator[tuple[str, Origin, messages.ToCoordinator]]:
        """Yield (sender, origin, message) of a round's worth; answer what is none here."""
        self.empty = False
        for _ in range(ROUND_MESSAGES):
            try:
                frames, origin = self._receive()
            except zmq.Again:
                self.empty = True
                return
            identity = frames.pop(0)
            sender = identity.decode("latin-1")  # any bytes are a name, and back again
            try:
                message = self._codec.decode(frames)
            except codec.BadFrame as error:
                self._log.warning("bad frame", peer=identity.hex(), error=str(error))
                if not self._knows(sender):
                    self.say(sender, messages.Refuse(reason=str(error)))
                # Whoever was welcomed speaks our protocol: what got lost in noise it says again.
                continue
            yield sender, origin, message

    def _receive(self) -> tuple[list[bytes], Origin]:
        if self._door is None:
            return self._socket.recv_multipart(zmq.NOBLOCK), LOCAL
        frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        try:
            key = frames[-1].get("User-Id")  # the ZAP handler's word: libzmq adds it to each frame
        except zmq.ZMQError:
            key = ""  # no handler was asked: the socket file
        origin = self._door.origin(str(key)) if key else LOCAL
        return [frame.bytes for frame in frames], origin

    def say(self, to: str, message: Message) -> None:
        """Put a message into the outbox."""
        self._outbox.append((to, message))

    def tell(self) -> None:
        """Send the outbox: call after the commit."""
        for to, message in self._outbox:
            self.send(to, message)
        self._outbox.clear()

    def send(self, to: str, message: Message) -> bool:
        """Send at once; False when the peer is gone or takes nothing."""
        address = to.encode("latin-1")
        try:
            send = self._socket.send
            for magic, body in failpoints.sending(message, self._codec.encode(message)):
                send(address, MORE)
                send(magic, MORE)
                send(body, LAST)
        except zmq.ZMQError as error:
            self._log.info("unsent", to=to, what=type(message).__name__, why=str(error))
            return False
        failpoints.reach_message("sent", message)
        return True
