"""The folders in which fast builds keep toolkits, results and slots on this machine.

Children may read the toolkits.  Results are kept apart from them: one candidate's result must stay
unknown to every other candidate.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

STORE_VARIABLE = "STARK_BUILD_STORE"  # names another folder for the store
TOOLKITS_VARIABLE = "STARK_TOOLKITS"  # names the toolkits' folder to a child that may only read it
INSIDE_CACHE = "stark-kernels/builds"
UNFINISHED_PREFIX = ".half-"
UNFINISHED_AGE_S = 3600.0  # longer than any process works on one entry


class ToolkitMissingError(Exception):
    """The store has no toolkit for this torch and compiler, or none can be made."""


@dataclass(frozen=True)
class BuildStore:
    """One machine's folder, shared by all evaluators of a user."""

    root: Path

    @property
    def toolkits(self) -> Path:
        return self.root / "toolkits"

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def slots(self) -> Path:
        return self.root / "slots"

    def make_folders(self) -> bool:
        """Make the folders; return whether they can be written to."""
        try:
            for folder in (self.toolkits, self.results, self.slots):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            return False
        return os.access(self.toolkits, os.W_OK) and os.access(self.results, os.W_OK)


def store_of_user(environ: Mapping[str, str]) -> BuildStore:
    """Return the store that `STARK_BUILD_STORE` names, else the one in the user's cache."""
    if environ.get(STORE_VARIABLE):
        return BuildStore(Path(environ[STORE_VARIABLE]).absolute())
    cache = environ.get("XDG_CACHE_HOME", "")
    folder = Path(cache) if cache.startswith("/") else Path("~/.cache").expanduser()
    return BuildStore(folder.absolute() / INSIDE_CACHE)


def remove_unfinished(folder: Path) -> None:
    """Remove the entries of `folder` that killed processes left unfinished."""
    for entry in folder.glob(f"{UNFINISHED_PREFIX}*"):
        try:
            if time.time() - entry.stat().st_mtime < UNFINISHED_AGE_S:
                continue
        except OSError:  # another process has just finished or removed it
            continue
        shutil.rmtree(entry, ignore_errors=True)
