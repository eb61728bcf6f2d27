"""The spool: replies on local disk between the model and the coordinator's acknowledgement.

A reply is written here before anything else uses it.  All agents of one run folder share the
spool: if an agent is killed, the agent that gets the work next finds the reply here and does not
buy it again.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import msgspec

from protocol.atomic_file import write_atomically
from protocol.values import Call


class ReplySpool:
    """A folder with one file for each reply that may not be stored yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, work: str, request: str) -> Call | None:
        """Return the reply to `request` that was bought for `work`, if one is here."""
        try:
            call = msgspec.msgpack.decode(self._path(work, request).read_bytes(), type=Call)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError:
            return None  # written by another version or damaged: ask again
        return call if call.request == request else None

    def store(self, work: str, call: Call) -> None:
        """Put a reply on disk, whole and flushed; raise OSError if the disk refuses it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        content = msgspec.msgpack.encode(call)
        write_atomically(self._path(work, call.request), content, sync_folder=True)

    def remove(self, work: str, request: str) -> None:
        """Delete a reply that the coordinator has stored."""
        with contextlib.suppress(OSError):  # a file that stays is the same reply to this request
            self._path(work, request).unlink()

    def _path(self, work: str, request: str) -> Path:
        key = hashlib.sha256(f"{work}\0{request}".encode()).hexdigest()
        return self._folder / f"{key[:40]}.reply"
