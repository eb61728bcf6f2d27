"""Typed frames over a Unix socket pair, file descriptors beside them.

A frame is [length, descriptors carried] and one msgpack struct.  Whatever arrives from a child
that runs candidate code is hostile: too long, cut, unknown or of wrong types raises
`MalformedFrameError`, and the descriptors such a child sends are never taken.
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
    """What arrived is no frame of ours."""


class ChannelClosedError(ConnectionError):
    """The other side is gone."""


class ChannelTimeoutError(TimeoutError):
    """The other side did not read in time."""


class Channel(Generic[T]):
    """One end: sends any order, receives one union (`T`)."""

    def __init__(self, end: socket.socket, union: object, *, descriptors: bool = False) -> None:
        self.socket = end
        self._descriptors = descriptors
        self._decoder = msgspec.msgpack.Decoder(union)
        self._buffer = bytearray()
        self._taken: list[int] = []

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
        """Read what is there, once; raise `ChannelClosedError` at the end."""
        try:
            if self._descriptors:
                data, ancillary, _flags, _address = self.socket.recvmsg(
                    CHUNK_BYTES, socket.CMSG_SPACE(4 * MAX_DESCRIPTORS), socket.MSG_CMSG_CLOEXEC
                )
                self._taken.extend(_rights(ancillary))
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
        """Whether anything has come that nobody has asked for."""
        if select.select([self.socket], [], [], 0)[0]:
            self.read_available()
        return bool(self._buffer)

    def next_order(self) -> tuple[T, list[int]] | None:
        """Return the next whole order and its descriptors, or None when it is not all there."""
        if len(self._buffer) < HEAD.size:
            return None
        length, count = HEAD.unpack_from(self._buffer)
        if length > MAX_FRAME_BYTES:
            raise MalformedFrameError(f"a frame of {length} bytes")
        if count and not self._descriptors:
            raise MalformedFrameError("descriptors where none are taken")
        if len(self._buffer) < HEAD.size + length:
            return None
        if len(self._taken) < count:
            raise MalformedFrameError("descriptors are missing")
        body = bytes(self._buffer[HEAD.size : HEAD.size + length])
        del self._buffer[: HEAD.size + length]
        carried, self._taken = self._taken[:count], self._taken[count:]
        try:
            order: T = self._decoder.decode(body)
        except (ValueError, RecursionError) as error:
            close_all(carried)
            raise MalformedFrameError(f"not an order: {error}") from error
        return order, carried

    def receive(self, awake_s: float = 0.0) -> tuple[T, list[int]]:
        """Block until an order is there: the children's way of reading.

        For `awake_s` it does not sleep: orders of a timed window follow each other closely, and
        being woken takes longer than many a kernel.
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
        close_all(self._taken)
        self._taken = []
        self.socket.close()


def _rights(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    taken = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            taken.frombytes(data[: len(data) - len(data) % taken.itemsize])
    return list(taken)


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors that nobody needs any more."""
    for descriptor in descriptors:
        os.close(descriptor)
