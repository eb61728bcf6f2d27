"""The cache of build results: what a candidate's import built, under a digest of its inputs.

Trusted code writes an entry after the candidate's process is gone.  The candidate's whole text is
part of the key, so files that a hostile candidate leaves come back to that candidate alone.  An
entry is a small tree of plain files; the cache neither follows, reads nor runs what is in them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from actors.evaluator.fastbuild.request.build_key import build_variables, digest
from actors.evaluator.fastbuild.store.build_record import RECORD_FILE
from actors.evaluator.fastbuild.store.build_store import UNFINISHED_PREFIX, remove_unfinished

MAX_BYTES = 256 << 20
MAX_FILES = 200
MAX_ENTRIES = 1000  # above this number the oldest entries are removed
MAX_DEPTH = 4
OMITTED_FILES = frozenset(["lock"])  # a killed build's lock would block the next build
CACHED_FILES = (".so", RECORD_FILE)


class ResultCache:
    """The results in one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def key(self, source: str, toolkit: str, environ: Mapping[str, str] = os.environ) -> str:
        """Return the key of what the candidate `source` builds with `toolkit` in `environ`."""
        return digest(source, toolkit, build_variables(environ))

    def copy_to(self, key: str, folder: Path) -> bool:
        """Copy the entry of `key` into the extensions folder; return whether there is one."""
        entry = self.root / key
        try:
            shutil.copytree(entry, folder, dirs_exist_ok=True)
        except (OSError, shutil.Error):  # there is no entry, or it is being removed
            shutil.rmtree(folder, ignore_errors=True)
            return False
        return True

    def store(self, key: str, folder: Path) -> bool:
        """Copy what was built in the extensions folder under `key`; return whether it is cached."""
        entry = self.root / key
        if entry.exists():
            return True
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            unfinished = Path(tempfile.mkdtemp(prefix=UNFINISHED_PREFIX, dir=self.root))
        except OSError:  # a full disk costs the next candidate a build, but no candidate a verdict
            return False
        try:
            if not _copy_plain_files(folder, unfinished):
                return False
            unfinished.rename(entry)
        except OSError:
            return entry.exists()
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        self._remove_oldest()
        return True

    def _remove_oldest(self) -> None:
        """Remove the oldest entries above `MAX_ENTRIES` and what killed processes left."""
        remove_unfinished(self.root)
        entries = [path for path in self.root.iterdir() if not path.name.startswith(".")]
        if len(entries) <= MAX_ENTRIES:
            return
        for entry in sorted(entries, key=_modified_s)[: len(entries) - MAX_ENTRIES]:
            removed = Path(tempfile.mkdtemp(prefix=UNFINISHED_PREFIX, dir=self.root))
            with contextlib.suppress(OSError):  # another evaluator removed it first
                entry.rename(removed / "entry")  # atomic: a reader finds a whole entry or none
            shutil.rmtree(removed, ignore_errors=True)


def _modified_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _copy_plain_files(folder: Path, to: Path) -> bool:
    """Copy libraries and records that are plain files; False when there are none or too many."""
    bytes_left = MAX_BYTES
    copied = 0
    if folder.is_symlink():  # the candidate may have replaced its folder by a link to anywhere
        return False
    for top, folders, files in os.walk(folder):
        inside = Path(top).relative_to(folder)
        if len(inside.parts) >= MAX_DEPTH:
            folders.clear()
        for name in files:
            if name in OMITTED_FILES or not name.endswith(CACHED_FILES):
                continue
            content = _read_plain_file(Path(top) / name, bytes_left)
            if content is None:
                return False
            bytes_left -= len(content)
            copied += 1
            if copied > MAX_FILES:
                return False
            copy = to / inside / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
            copy.chmod(0o755 if name.endswith(".so") else 0o644)
    return copied > 0


def _read_plain_file(path: Path, limit: int) -> bytes | None:
    """Return the content of a plain file of at most `limit` bytes; None for anything else."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(file, "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return None
        content = opened.read(limit + 1)
    return content if len(content) <= limit else None
