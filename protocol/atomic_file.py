"""Atomic file writing: a reader sees the old content or the new one, never a part of it."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

FILE_MODE = 0o666  # less the umask
PRIVATE_FILE_MODE = 0o600


def write_atomically(
    path: Path, content: str | bytes, *, private: bool = False, sync_folder: bool = False
) -> None:
    """Replace `path` by a file with `content`, flushed to disk; raise OSError that names `path`.

    `private`: only the owner may read the file, from its first byte on.  `sync_folder`: the name
    survives a power failure, too.  Several processes may write one path at the same time.
    """
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    mode = PRIVATE_FILE_MODE if private else FILE_MODE
    try:
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException as error:
        with suppress(OSError):
            scratch.unlink()
        if isinstance(error, OSError):
            error.filename = str(path)  # users do not know the scratch file
        raise
    if sync_folder:
        _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
