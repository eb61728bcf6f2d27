"""The coordinator's post: frames in, frames out, nothing told before it is durable.

Peers are called by their socket's name, which must be the incarnation that they say Hello with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import zmq
from structlog.typing import FilteringBoundLogger

from actors import failpoints
from actors.coordinator.gateway.authenticator import Authenticator
from actors.coordinator.scheduling.workers import LOCAL_PEER, PeerIdentity
from protocol import codec, messages
from protocol.messages import Message

MAX_MESSAGES_PER_ROUND = 500
# As plain numbers: pyzmq's own flags are an enum, and an enum's `|` costs more than a send.
SEND_MORE = int(zmq.NOBLOCK) | int(zmq.SNDMORE)
SEND_LAST = int(zmq.NOBLOCK)


class Outbox:
    """One ROUTER socket, with an outbox that is emptied after the commit."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        log: FilteringBoundLogger,
        knows: Callable[[str], bool] = lambda _name: False,
        authenticator: Authenticator | None = None,
    ) -> None:
        self._socket = socket
        self._knows = knows
        self._log = log
        self._authenticator = authenticator
        self._codec = codec.coordinator_codec()
        self._queued: list[tuple[str, Message]] = []
        self.empty = True  # whether the last read left nothing waiting

    def wait(self, seconds: float) -> None:
        """Return when something has arrived, or after `seconds`."""
        self._socket.poll(max(0, int(seconds * 1000)))

    def read(self) -> Iterator[tuple[str, PeerIdentity, messages.ToCoordinator]]:
        """Yield (sender, origin, message) of a round's worth; answer what is none here."""
        self.empty = False
        for _ in range(MAX_MESSAGES_PER_ROUND):
            try:
                frames, origin = self._receive()
            except zmq.Again:
                self.empty = True
                return
            identity = frames.pop(0)
            sender = identity.decode("latin-1")  # any bytes are a name, and back again
            try:
                message = self._codec.decode(frames)
            except codec.FrameError as error:
                self._log.warning("bad frame", peer=identity.hex(), error=str(error))
                if not self._knows(sender):
                    self.queue(sender, messages.Refuse(reason=str(error)))
                # Whoever was welcomed speaks our protocol: what got lost in noise it says again.
                continue
            yield sender, origin, message

    def _receive(self) -> tuple[list[bytes], PeerIdentity]:
        if self._authenticator is None:
            return self._socket.recv_multipart(zmq.NOBLOCK), LOCAL_PEER
        frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        try:
            key = frames[-1].get("User-Id")  # the ZAP handler's word: libzmq adds it to each frame
        except zmq.ZMQError:
            key = ""  # no handler was asked: the socket file
        identity = self._authenticator.identity_of_key(str(key)) if key else LOCAL_PEER
        return [frame.bytes for frame in frames], identity

    def queue(self, to: str, message: Message) -> None:
        """Put a message into the outbox."""
        self._queued.append((to, message))

    def flush(self) -> None:
        """Send the outbox: call after the commit."""
        for to, message in self._queued:
            self.send(to, message)
        self._queued.clear()

    def send(self, to: str, message: Message) -> bool:
        """Send at once; False when the peer is gone or takes nothing."""
        address = to.encode("latin-1")
        try:
            send = self._socket.send
            for magic, body in failpoints.frames_to_send(message, self._codec.encode(message)):
                send(address, SEND_MORE)
                send(magic, SEND_MORE)
                send(body, SEND_LAST)
        except zmq.ZMQError as error:
            self._log.info("unsent", to=to, what=type(message).__name__, why=str(error))
            return False
        failpoints.hit_message("sent", message)
        return True
