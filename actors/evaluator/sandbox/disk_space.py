"""Whether the disk under an evaluator's scratch has room: what fails for want of it is no verdict.

A candidate's own folder is gone when this is asked, so what it filled up itself is free again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from actors.evaluator.sandbox.zygote_client import DeviceQuarantinedError
from protocol.values import Outcome

MIN_BYTES = 1 << 20  # with less nothing can be begun
TIGHT_BYTES = 256 << 20  # with less a compiler's word that the disk is full is believed
DISK_FULL_PHRASES = ("No space left on device", "Disk quota exceeded")
FAILED_OUTCOMES = (Outcome.CRASHED, Outcome.COMPILE_FAILED)


class DiskFullError(DeviceQuarantinedError):
    """The disk is full; no candidate is to blame."""


class DiskSpace:
    """The room of one scratch folder."""

    def __init__(self, folder: Path, free: Callable[[Path], int] | None = None) -> None:
        self._folder = folder
        self._free = free or (lambda path: shutil.disk_usage(path).free)

    def require(self) -> None:
        """Raise `DiskFullError` where nothing can be begun."""
        self._refuse(MIN_BYTES)

    def require_for(self, word: Outcome, said: str) -> None:
        """Raise `DiskFullError` where the disk, and not the candidate, is what failed."""
        if word in FAILED_OUTCOMES:
            self._refuse(
                TIGHT_BYTES if any(sign in said for sign in DISK_FULL_PHRASES) else MIN_BYTES
            )

    def _refuse(self, least: int) -> None:
        try:
            free = self._free(self._folder)
        except OSError:
            return  # whatever is wrong there, it is not that
        if free < least:
            raise DiskFullError(f"no room on the disk of {self._folder}: {free >> 20} MiB are free")
