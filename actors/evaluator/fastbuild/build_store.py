"""Where fast builds keep what lasts on this machine; needs no torch.

Toolkits are for the eyes of children, too; results are their makers' secrets, and lie apart.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

STORE_VARIABLE = "STARK_BUILD_STORE"  # the variable that names another folder
TOOLKITS_VARIABLE = "STARK_TOOLKITS"  # tells a child where to look, if it can't write there
INSIDE_CACHE = "stark-kernels/builds"
UNFINISHED_PREFIX = ".half-"
UNFINISHED_AGE_S = 3600.0  # longer than any maker works


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
        """Make the folders; say whether they can be written to."""
        try:
            for folder in (self.toolkits, self.results, self.slots):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            return False
        return os.access(self.toolkits, os.W_OK) and os.access(self.results, os.W_OK)


def store_of_user(environ: Mapping[str, str]) -> BuildStore:
    """Return the store that the environment names: `STARK_BUILD_STORE`, or in the user's cache."""
    if environ.get(STORE_VARIABLE):
        return BuildStore(Path(environ[STORE_VARIABLE]).absolute())
    cache = environ.get("XDG_CACHE_HOME", "")
    folder = Path(cache) if cache.startswith("/") else Path("~/.cache").expanduser()
    return BuildStore(folder.absolute() / INSIDE_CACHE)


def remove_unfinished(folder: Path) -> None:
    """Remove what makers that were killed left half-made in `folder`."""
    for half in folder.glob(f"{UNFINISHED_PREFIX}*"):
        try:
            if time.time() - half.stat().st_mtime < UNFINISHED_AGE_S:
                continue
        except OSError:  # its maker has just finished it
            continue
        shutil.rmtree(half, ignore_errors=True)
