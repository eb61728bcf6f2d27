"""Frames on the wire: [magic with the protocol's major] [one msgpack struct].

All input is untrusted until decoded: a frame of another major, an unknown tag, a wrong type or a
flipped byte raises `FrameError`, which concerns only the peer that sent it.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from protocol import messages
from protocol.values import Role

MAGIC = b"STARK" + bytes([messages.MAJOR])
MAX_FRAME_BYTES = 64 * 1024 * 1024

T = TypeVar("T")


class FrameError(ValueError):
    """The frames are not a message of this protocol."""


class ProtocolVersionError(FrameError):
    """The frames are of another major version of this protocol."""


class Codec(Generic[T]):
    """Encodes any message, decodes one union (`T`): the other side's."""

    def __init__(self, union: object) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(union)

    def encode(self, message: messages.Message) -> list[bytes]:
        """Return the frames of one message."""
        return [MAGIC, self._encoder.encode(message)]

    def decode(self, frames: list[bytes]) -> T:
        """Return the message in `frames`; raise `FrameError` with one line on what is wrong."""
        if len(frames) != 2:
            raise FrameError(f"expected 2 frames, got {len(frames)}")
        magic, body = frames
        if magic != MAGIC:
            raise _unknown_magic(magic)
        try:
            # msgspec raises UnicodeDecodeError on bad UTF-8, which is a ValueError only.
            message: T = self._decoder.decode(body)
        except (ValueError, RecursionError) as error:
            raise FrameError(f"not a message: {error}") from error
        return message


def _unknown_magic(magic: bytes) -> FrameError:
    """Return the error for a first frame other than `MAGIC`."""
    if len(magic) == len(MAGIC) and magic[:-1] == MAGIC[:-1]:
        return ProtocolVersionError(f"protocol major {magic[-1]}, expected {messages.MAJOR}")
    return FrameError("not a STARK frame")


def coordinator_codec() -> Codec[messages.ToCoordinator]:
    """Return the coordinator's codec: it decodes the messages of workers and supervisors."""
    return Codec(messages.ToCoordinator)


def worker_codec() -> Codec[messages.ToWorker]:
    """Return a worker's or supervisor's codec: it decodes the messages of the coordinator."""
    return Codec(messages.ToWorker)


def messages_allowed_from(role: Role) -> object:
    """Return the union of the messages that a role may send."""
    if role is Role.EVALUATOR:
        return messages.FromEvaluator
    if role is Role.SUPERVISOR:
        return messages.FromSupervisor
    return messages.FromAgent
