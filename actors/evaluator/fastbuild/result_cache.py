"""The store of results: what a candidate's import built, by everything that went into it.

Written by trusted code after the process that ran the candidate is gone, and under the candidate's
whole text: what a hostile candidate leaves in its folder is found again by that candidate alone.
Only small trees of plain files are taken; nothing in them is followed, read or run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from actors.evaluator.fastbuild.build_record import FILE_NAME
from actors.evaluator.fastbuild.build_store import UNFINISHED_PREFIX, remove_unfinished
from actors.evaluator.fastbuild.flag_set import BUILD_VARIABLES
from actors.evaluator.fastbuild.precompiled_headers import digest

MAX_BYTES = 256 << 20
MAX_FILES = 200
MAX_ENTRIES = 1000  # then those that were kept first go
MAX_DEPTH = 4
NOT_KEPT = frozenset(["lock"])  # a killed build's lock would hang the next one
KEPT_FILES = (".so", FILE_NAME)


class ResultCache:
    """Results in one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def key(self, source: str, toolkit: str, environ: Mapping[str, str] = os.environ) -> str:
        """Return the name for what the candidate `source` builds with `toolkit` in `environ`."""
        return digest(source, toolkit, [environ.get(name) for name in BUILD_VARIABLES])

    def copy_to(self, key: str, folder: Path) -> bool:
        """Copy what was kept under `key` into the extensions folder; say whether there was any."""
        kept = self.root / key
        try:
            shutil.copytree(kept, folder, dirs_exist_ok=True)
        except (OSError, shutil.Error):  # there is none, or it goes just now
            shutil.rmtree(folder, ignore_errors=True)
            return False
        return True

    def store(self, key: str, folder: Path) -> bool:
        """Keep what was built in the extensions folder under `key`; say whether it was taken."""
        place = self.root / key
        if place.exists():
            return True
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            half = Path(tempfile.mkdtemp(prefix=UNFINISHED_PREFIX, dir=self.root))
        except OSError:  # a full disk costs the next one a build, nobody a verdict
            return False
        try:
            if not _copy_plain(folder, half):
                return False
            half.rename(place)
        except OSError:
            return place.exists()
        finally:
            shutil.rmtree(half, ignore_errors=True)
        self._make_room()
        return True

    def _make_room(self) -> None:
        """Remove the oldest above `MAX_ENTRIES`, and what killed ones left."""
        remove_unfinished(self.root)
        kept = [place for place in self.root.iterdir() if not place.name.startswith(".")]
        if len(kept) <= MAX_ENTRIES:
            return
        for place in sorted(kept, key=_age)[: len(kept) - MAX_ENTRIES]:
            gone = Path(tempfile.mkdtemp(prefix=UNFINISHED_PREFIX, dir=self.root))
            with contextlib.suppress(OSError):  # another evaluator took it first
                place.rename(gone / "gone")  # whole or not at all, for who restores just now
            shutil.rmtree(gone, ignore_errors=True)


def _age(place: Path) -> float:
    try:
        return place.stat().st_mtime
    except OSError:
        return 0.0


def _copy_plain(folder: Path, to: Path) -> bool:
    """Copy libraries and records that are plain files; False when there is too much or none."""
    left = MAX_BYTES
    found = 0
    if folder.is_symlink():  # whoever built in it may have made it one to anywhere
        return False
    for top, folders, files in os.walk(folder):
        inside = Path(top).relative_to(folder)
        if len(inside.parts) >= MAX_DEPTH:
            folders.clear()
        for name in files:
            if name in NOT_KEPT or not name.endswith(KEPT_FILES):
                continue
            content = _read_plain(Path(top) / name, left)
            if content is None:
                return False
            left -= len(content)
            found += 1
            if found > MAX_FILES:
                return False
            place = to / inside / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            place.chmod(0o755 if name.endswith(".so") else 0o644)
    return found > 0


def _read_plain(path: Path, limit: int) -> bytes | None:
    """Return the bytes of a plain file of at most `limit`; None for anything else."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > limit:
            return None
        content = opened.read(limit + 1)
    return content if len(content) <= limit else None
