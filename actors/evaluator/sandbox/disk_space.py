"""Whether the disk under an evaluator's scratch is full; a failure on a full disk is not a verdict.

The candidate's own folder is removed before the check, so space that the candidate itself filled
is free again.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from actors.evaluator.sandbox.zygote_client import DeviceQuarantinedError
from protocol.values import Outcome

MIN_BYTES = 1 << 20  # with less, no evaluation can begin
TIGHT_BYTES = 256 << 20  # with less, a compiler's message that the disk is full is believed
MIN_FILES, TIGHT_FILES = 16, 1000  # the same of the files that may still be made (inodes)
DISK_FULL_PHRASES = ("No space left on device", "Disk quota exceeded")
FAILED_OUTCOMES = (Outcome.CRASHED, Outcome.COMPILE_FAILED)


class DiskFullError(DeviceQuarantinedError):
    """The disk is full; the candidate is not at fault."""


class DiskSpace:
    """The free space under one scratch folder."""

    def __init__(
        self,
        folder: Path,
        free: Callable[[Path], int] | None = None,
        free_files: Callable[[Path], int] | None = None,
    ) -> None:
        self._folder = folder
        self._free = free or (lambda path: shutil.disk_usage(path).free)
        self._free_files = free_files or _free_files

    def require(self) -> None:
        """Raise `DiskFullError` where no evaluation can begin."""
        self._require(MIN_BYTES, MIN_FILES)

    def require_for(self, outcome: Outcome, output: str) -> None:
        """Raise `DiskFullError` where the disk failed, and not the candidate.

        `output`: the reason and the log of the verdict in question.
        """
        if outcome in FAILED_OUTCOMES:
            is_reported = any(phrase in output for phrase in DISK_FULL_PHRASES)
            if is_reported:
                self._require(TIGHT_BYTES, TIGHT_FILES)
            else:
                self._require(MIN_BYTES, MIN_FILES)

    def _require(self, least_bytes: int, least_files: int) -> None:
        try:
            free, files = self._free(self._folder), self._free_files(self._folder)
        except OSError:
            return  # the folder has another problem
        if free < least_bytes or files < least_files:
            count = f" and {files} files" if files < least_files else ""
            raise DiskFullError(
                f"no room on the disk of {self._folder}: {free >> 20} MiB{count} are free"
            )


def _free_files(path: Path) -> int:
    """Return how many files may still be made there; some file systems have no limit."""
    found = os.statvfs(path)
    return found.f_favail if found.f_files else sys.maxsize
