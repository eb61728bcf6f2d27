"""A faulty network in user space: a TCP proxy on loopback between workers and the coordinator.

One thread serves any number of connections.  It passes bytes.  On command it delays them, drops
them (`drop_traffic`: one direction or both; the connections stay open, as behind a dead switch),
ends one direction (`half_close`), flips a byte, or cuts all connections.  It adds no bytes, and
without a command it loses and reorders none.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from enum import Enum

CHUNK = 65536
POLL_S = 0.02


class Direction(Enum):
    """A direction through the proxy."""

    UP = "up"  # towards the coordinator
    DOWN = "down"


@dataclass(eq=False)
class ProxyStream:
    """One direction of one connection: bytes on their way, with the time when they may go on."""

    direction: Direction
    source: socket.socket
    sink: socket.socket
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)
    ended: bool = False  # the source has sent its last byte
    closed: bool = False  # and the sink is shut down


class FaultyProxy:
    """Listens on a port of its own and carries every connection to `target`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._streams: set[ProxyStream] = set()
        self._dropped: frozenset[Direction] = frozenset()
        self._delay_s = 0.0
        self._flips: set[Direction] = set()
        self._halves: set[Direction] = set()
        self._cut = self._ended = False
        self.flipped = 0
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """Where workers connect to."""
        return f"tcp://{self.address[0]}:{self.address[1]}"

    # --- commands, from any thread; each takes effect within POLL_S ------------------------------

    def drop_traffic(self, *ways: Direction) -> None:
        """Drop all bytes in these directions from now on; without a direction: pass again.

        Dropped bytes are lost for good, so at the end all connections are cut: a real network
        would have lost packets only, and its ends would have sent them again or given up.
        """
        if self._dropped and not ways:
            self._cut = True
        self._dropped = frozenset(ways)

    def delay(self, seconds: float) -> None:
        """Delay every byte by `seconds`."""
        self._delay_s = seconds

    def flip(self, direction: Direction) -> None:
        """Change one bit of the next bytes in a direction."""
        self._flips.add(direction)

    def half_close(self, direction: Direction) -> None:
        """End one direction of all connections, as a peer that has shut down its writing."""
        self._halves.add(direction)

    def cut(self) -> None:
        """End all connections."""
        self._cut = True

    def close(self) -> None:
        """End the proxy."""
        self._ended = True
        self._thread.join()

    # --- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ended:
            for key, _ in self._selector.select(POLL_S):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.data, ProxyStream):
                    self._read(key.data)
            self._apply_commands()
            for stream in list(self._streams):
                self._write(stream)
        self._drop_all()
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        try:
            near, _ = self._listener.accept()
        except OSError:
            return
        try:
            far = socket.create_connection(self._target, timeout=1.0)
        except OSError:
            near.close()  # the target does not listen: as if the port were closed
            return
        for one in (near, far):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for direction, source, sink in ((Direction.UP, near, far), (Direction.DOWN, far, near)):
            stream = ProxyStream(direction, source, sink)
            self._streams.add(stream)
            self._selector.register(source, selectors.EVENT_READ, stream)

    def _read(self, stream: ProxyStream) -> None:
        try:
            data = stream.source.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            stream.ended = True
            self._selector.unregister(stream.source)
        elif stream.direction not in self._dropped:
            if stream.direction in self._flips:
                self._flips.discard(stream.direction)
                data = _flipped(data)
                self.flipped += 1
            stream.waiting.append((time.monotonic() + self._delay_s, data))

    def _write(self, stream: ProxyStream) -> None:
        now = time.monotonic()
        while stream.waiting and stream.waiting[0][0] <= now:
            due, data = stream.waiting.popleft()
            try:
                sent = stream.sink.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._drop(stream)
                return
            if sent < len(data):
                stream.waiting.appendleft((due, data[sent:]))
                return
        if stream.ended and not stream.waiting and not stream.closed:
            self._end(stream)

    def _end(self, stream: ProxyStream) -> None:
        stream.closed = True
        try:
            stream.sink.shutdown(socket.SHUT_WR)
        except OSError:
            self._drop(stream)
            return
        if all(one.closed for one in self._both(stream)):
            self._drop(stream)

    def _apply_commands(self) -> None:
        if self._cut:
            self._cut = False
            self._drop_all()
        for direction in list(self._halves):
            self._halves.discard(direction)
            for stream in list(self._streams):
                if stream.direction is direction and not stream.closed:
                    stream.ended = True
                    if stream.source in self._selector.get_map():
                        self._selector.unregister(stream.source)

    def _both(self, stream: ProxyStream) -> list[ProxyStream]:
        ends = {stream.source, stream.sink}
        return [one for one in self._streams if {one.source, one.sink} == ends]

    def _drop(self, stream: ProxyStream) -> None:
        for one in self._both(stream):
            self._streams.discard(one)
            if one.source in self._selector.get_map():
                self._selector.unregister(one.source)
        stream.source.close()
        stream.sink.close()

    def _drop_all(self) -> None:
        while self._streams:
            self._drop(next(iter(self._streams)))


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :]
