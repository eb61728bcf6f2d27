"""Whether the disk under an evaluator's scratch has room: what fails for want of it is no verdict.

A candidate's own folder is gone when this is asked, so what it filled up itself is free again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from actors.evaluator.devices.health import Quarantined
from protocol.values import Word

LEAST_BYTES = 1 << 20  # with less nothing can be begun
TIGHT_BYTES = 256 << 20  # with less a compiler's word that the disk is full is believed
SIGNS = ("No space left on device", "Disk quota exceeded")
FAILED = (Word.CRASHED, Word.COMPILE_FAILED)


class NoRoom(Quarantined):
    """The disk is full; no candidate is to blame."""


class Room:
    """The room of one scratch folder."""

    def __init__(self, folder: Path, free: Callable[[Path], int] | None = None) -> None:
        self._folder = folder
        self._free = free or (lambda path: shutil.disk_usage(path).free)

    def insist(self) -> None:
        """Raise `NoRoom` where nothing can be begun."""
        self._refuse(LEAST_BYTES)

    def insist_for(self, word: Word, said: str) -> None:
        """Raise `NoRoom` where the disk, and not the candidate, is what failed."""
        if word in FAILED:
            self._refuse(TIGHT_BYTES if any(sign in said for sign in SIGNS) else LEAST_BYTES)

    def _refuse(self, least: int) -> None:
        try:
            free = self._free(self._folder)
        except OSError:
            return  # whatever is wrong there, it is not that
        if free < least:
            raise NoRoom(f"no room on the disk of {self._folder}: {free >> 20} MiB are free")
