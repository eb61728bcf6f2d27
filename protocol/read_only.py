"""Where a run's truth lies, and by which address it is opened for reading, by whoever may look."""

from __future__ import annotations

import os
from pathlib import Path

RUN_DB = "run.db"  # the file of a run's store, in its folder


def read_only_uri(path: Path) -> str:
    """Return the URI by which SQLite opens `path` without ever writing to it.

    Beside a file with a write-ahead log even a reader needs files of its own.  Where it can't make
    them (a disk that is read-only, somebody else's folder) and no log is left, nobody writes.
    """
    whole = path.resolve()
    log = whole.with_name(whole.name + "-wal")
    quiet = not log.exists() and not os.access(whole.parent, os.W_OK)
    return f"{whole.as_uri()}?mode=ro{'&immutable=1' if quiet else ''}"
