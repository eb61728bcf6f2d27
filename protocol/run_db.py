"""The file name of a run's store, and the URI that opens it read-only."""

from __future__ import annotations

import os
from pathlib import Path

RUN_DB = "run.db"  # the file of a run's store, in its folder


def read_only_uri(path: Path) -> str:
    """Return the URI by which SQLite opens `path` without ever writing to it.

    In WAL mode a reader, too, makes files next to the database.  Where it can't (a read-only disk,
    another user's folder) and no write-ahead log exists, no process writes to the database, so it
    can be opened as immutable.
    """
    absolute = path.resolve()
    log = absolute.with_name(absolute.name + "-wal")
    is_immutable = not log.exists() and not os.access(absolute.parent, os.W_OK)
    return f"{absolute.as_uri()}?mode=ro{'&immutable=1' if is_immutable else ''}"
