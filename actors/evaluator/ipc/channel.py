"""Typed frames with file descriptors over a Unix socket pair.

A frame is [length, number of descriptors] and one msgpack struct.  All bytes from a child that runs
candidate code are treated as hostile: a frame that is too long, cut, unknown or of wrong types
raises `MalformedFrameError`, and descriptors from such a child are never accepted.
"""

from __future__ import annotations

import array
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

HEAD = struct.Struct("<IB")
MAX_FRAME_BYTES = 4 * 1024 * 1024
MAX_DESCRIPTORS = 8
CHUNK_BYTES = 1 << 16

T = TypeVar("T")


class MalformedFrameError(ValueError):
    """The bytes that arrived are not a frame of this protocol."""


class ChannelClosedError(ConnectionError):
    """The other end is closed."""


class ChannelTimeoutError(TimeoutError):
    """The other end did not read in time."""


class Channel(Generic[T]):
    """One end: it sends any order and receives one union of orders (`T`)."""

    def __init__(self, end: socket.socket, union: object, *, descriptors: bool = False) -> None:
        self.socket = end
        self._descriptors = descriptors
        self._decoder = msgspec.msgpack.Decoder(union)
        self._buffer = bytearray()
        self._received: list[int] = []

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(
        self, order: msgspec.Struct, carried: Sequence[int] = (), seconds: float | None = None
    ) -> None:
        """Send one order; raise `ChannelClosedError`, or `ChannelTimeoutError` when it is not read
        within `seconds`.
        """
        body = msgspec.msgpack.encode(order)
        if len(body) > MAX_FRAME_BYTES:
            raise MalformedFrameError(
                f"a frame of {len(body)} bytes; at most {MAX_FRAME_BYTES} may be sent"
            )
        frame = memoryview(HEAD.pack(len(body), len(carried)) + body)
        until = None if seconds is None else time.monotonic() + seconds
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", carried))]
        ancillary = rights if carried else []
        while frame:
            self._wait_writable(until)
            try:
                sent = self.socket.sendmsg([frame], ancillary, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelClosedError(str(error)) from error
            frame, ancillary = frame[sent:], []

    def _wait_writable(self, until: float | None) -> None:
        if until is None:
            return
        poller = select.poll()
        poller.register(self.socket, select.POLLOUT)
        if not poller.poll(max(0.0, until - time.monotonic()) * 1000):
            raise ChannelTimeoutError("the order was not read")

    def read_available(self) -> None:
        """Read the available bytes, once; raise `ChannelClosedError` at the end."""
        try:
            if self._descriptors:
                data, ancillary, _flags, _address = self.socket.recvmsg(
                    CHUNK_BYTES, socket.CMSG_SPACE(4 * MAX_DESCRIPTORS), socket.MSG_CMSG_CLOEXEC
                )
                self._received.extend(_rights(ancillary))
            else:
                data = self.socket.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise ChannelClosedError(str(error)) from error
        if not data:
            raise ChannelClosedError("end of the channel")
        self._buffer += data

    def has_pending(self) -> bool:
        """Whether bytes have arrived, though no order was sent that asks for them."""
        if select.select([self.socket], [], [], 0)[0]:
            self.read_available()
        return bool(self._buffer)

    def next_order(self) -> tuple[T, list[int]] | None:
        """Return the next order and its descriptors, or None if it has not arrived whole."""
        if len(self._buffer) < HEAD.size:
            return None
        length, count = HEAD.unpack_from(self._buffer)
        if length > MAX_FRAME_BYTES:
            raise MalformedFrameError(f"a frame of {length} bytes")
        if count and not self._descriptors:
            raise MalformedFrameError("descriptors where none are accepted")
        if len(self._buffer) < HEAD.size + length:
            return None
        if len(self._received) < count:
            raise MalformedFrameError("descriptors are missing")
        body = bytes(self._buffer[HEAD.size : HEAD.size + length])
        del self._buffer[: HEAD.size + length]
        carried, self._received = self._received[:count], self._received[count:]
        try:
            order: T = self._decoder.decode(body)
        except (ValueError, RecursionError) as error:
            close_all(carried)
            raise MalformedFrameError(f"not an order: {error}") from error
        return order, carried

    def receive(self, awake_s: float = 0.0) -> tuple[T, list[int]]:
        """Block until an order is there; children read with this.

        For `awake_s` it does not sleep.  Orders of a timed window follow each other closely, and
        waking up takes longer than many a kernel.
        """
        until = time.perf_counter() + awake_s
        while True:
            found = self.next_order()
            if found is not None:
                return found
            while time.perf_counter() < until:
                if select.select([self.socket], [], [], 0)[0]:
                    break
            self.read_available()

    def close(self) -> None:
        """Close the socket and all descriptors that were received."""
        close_all(self._received)
        self._received = []
        self.socket.close()


def _rights(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return list(descriptors)


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors that are not needed any more."""
    for descriptor in descriptors:
        os.close(descriptor)
