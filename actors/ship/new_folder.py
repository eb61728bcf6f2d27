"""A folder that is written beside its place: whole when it gets its name, or not there.

It is locked while its process lives, so that the next command removes what a killed one left.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from actors.ship.errors import ShipError

UNLOCKED_S = 60.0  # a folder is made, and then locked


@contextmanager
def new_folder(folder: Path, files: Mapping[str, str]) -> Iterator[Path]:
    """Write files into a new folder beside `folder`, and yield it; `place` gives it its name.

    Without a name at the end it is removed.  Raises ShipError.
    """
    check_free(folder)
    whole = folder.absolute()
    scratch = whole.with_name(f".{whole.name}.{secrets.token_hex(4)}.new")
    lock = -1
    try:
        try:
            scratch.mkdir(parents=True)
            lock = _locked(scratch)
            _remove_abandoned(whole)
            for path, text in files.items():
                target = scratch / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8", newline="")
        except OSError as error:
            where = error.filename or scratch  # a full disk names no file
            raise ShipError(f"--out {folder}: can't write {where}: {error.strerror}") from error
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if lock >= 0:
            os.close(lock)


def check_free(folder: Path) -> None:
    """Raise ShipError unless `folder` does not exist, or is an empty folder."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ShipError(f"--out {folder} exists and is not a folder: choose another")
    if folder.is_dir() and any(folder.iterdir()):
        raise ShipError(f"--out {folder} exists and is not empty: choose another, or remove it")


def place(scratch: Path, folder: Path) -> None:
    """Give a whole folder its name."""
    try:
        scratch.rename(folder.absolute())  # over an empty folder, too
    except OSError as error:
        raise ShipError(f"--out {folder}: {error.strerror}") from error


def _locked(scratch: Path) -> int:
    """Return the descriptor of a folder that is locked until the descriptor is closed."""
    descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with suppress(OSError):  # a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def _remove_abandoned(folder: Path) -> None:
    """Remove the new folders of killed commands."""
    begin, end = f".{folder.name}.", ".new"
    for path in folder.parent.iterdir():
        if not (path.name.startswith(begin) and path.name.endswith(end)):
            continue
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - os.fstat(descriptor).st_mtime > UNLOCKED_S:
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)
