"""The coordinator's messages: frames in, and frames out after the commit.

A peer is addressed by its socket's name, which must be the incarnation in its Hello.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import zmq

from actors import failpoints
from actors.coordinator.gateway.authenticator import Authenticator
from actors.coordinator.scheduling.workers import LOCAL_PEER, PeerIdentity
from actors.log import FilteringBoundLogger
from protocol import codec, messages
from protocol.messages import Message

MAX_MESSAGES_PER_ROUND = 500
# As plain numbers: pyzmq's own flags are an enum, and an enum's `|` costs more than a send.
SEND_MORE = int(zmq.NOBLOCK) | int(zmq.SNDMORE)
SEND_LAST = int(zmq.NOBLOCK)


class PeerSocket:
    """One ROUTER socket, with a queue of messages that `flush` sends after the commit."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        log: FilteringBoundLogger,
        is_known: Callable[[str], bool] = lambda _name: False,
        authenticator: Authenticator | None = None,
    ) -> None:
        """`is_known`: whether a peer has been welcomed."""
        self._socket = socket
        self._is_known = is_known
        self._log = log
        self._authenticator = authenticator
        self._codec = codec.coordinator_codec()
        self._queued: list[tuple[str, Message]] = []
        self.has_read_all = True  # whether the last `read` read all that had arrived

    def wait(self, seconds: float) -> None:
        """Return when something has arrived, or after `seconds`."""
        self._socket.poll(max(0, int(seconds * 1000)))

    def read(self) -> Iterator[tuple[str, PeerIdentity, messages.ToCoordinator]]:
        """Yield (sender, identity, message) for one round; refuse frames of another protocol."""
        self.has_read_all = False
        for _ in range(MAX_MESSAGES_PER_ROUND):
            try:
                frames, identity = self._receive()
            except zmq.Again:
                self.has_read_all = True
                return
            address = frames.pop(0)
            sender = address.decode("latin-1")  # maps any bytes to a name and back
            try:
                message = self._codec.decode(frames)
            except codec.FrameError as error:
                self._log.warning("bad frame", peer=address.hex(), error=str(error))
                if not self._is_known(sender):
                    self.queue(sender, messages.Refuse(reason=str(error)))
                # A welcomed peer speaks our protocol: it repeats a message that was damaged.
                continue
            yield sender, identity, message

    def _receive(self) -> tuple[list[bytes], PeerIdentity]:
        if self._authenticator is None:
            return self._socket.recv_multipart(zmq.NOBLOCK), LOCAL_PEER
        frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        try:
            key = frames[-1].get("User-Id")  # libzmq adds the ZAP handler's answer to each frame
        except zmq.ZMQError:
            key = ""  # no handler was asked: the message came through the socket file
        identity = self._authenticator.identity_of_key(str(key)) if key else LOCAL_PEER
        return [frame.bytes for frame in frames], identity

    def queue(self, to: str, message: Message) -> None:
        """Queue a message for the next `flush`."""
        self._queued.append((to, message))

    def flush(self) -> None:
        """Send the queued messages; call after the commit."""
        for to, message in self._queued:
            self.send(to, message)
        self._queued.clear()

    def send(self, to: str, message: Message) -> bool:
        """Send at once; False when the peer is gone or its queue is full."""
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
