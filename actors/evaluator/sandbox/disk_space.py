"""Whether the disk under an evaluator's scratch is full; a failure on a full disk is not a verdict.

The candidate's own folder is removed before the check, so space that the candidate itself filled
is free again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from actors.evaluator.sandbox.zygote_client import DeviceQuarantinedError
from protocol.values import Outcome

MIN_BYTES = 1 << 20  # with less, no evaluation can begin
TIGHT_BYTES = 256 << 20  # with less, a compiler's message that the disk is full is believed
DISK_FULL_PHRASES = ("No space left on device", "Disk quota exceeded")
FAILED_OUTCOMES = (Outcome.CRASHED, Outcome.COMPILE_FAILED)


class DiskFullError(DeviceQuarantinedError):
    """The disk is full; the candidate is not at fault."""


class DiskSpace:
    """The free space under one scratch folder."""

    def __init__(self, folder: Path, free: Callable[[Path], int] | None = None) -> None:
        self._folder = folder
        self._free = free or (lambda path: shutil.disk_usage(path).free)

    def require(self) -> None:
        """Raise `DiskFullError` where no evaluation can begin."""
        self._require_bytes(MIN_BYTES)

    def require_for(self, outcome: Outcome, output: str) -> None:
        """Raise `DiskFullError` where the disk failed, and not the candidate.

        `output`: the reason and the log of the verdict in question.
        """
        if outcome in FAILED_OUTCOMES:
            is_reported = any(phrase in output for phrase in DISK_FULL_PHRASES)
            self._require_bytes(TIGHT_BYTES if is_reported else MIN_BYTES)

    def _require_bytes(self, least: int) -> None:
        try:
            free = self._free(self._folder)
        except OSError:
            return  # the folder has another problem
        if free < least:
            raise DiskFullError(f"no room on the disk of {self._folder}: {free >> 20} MiB are free")
