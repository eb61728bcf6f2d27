"""A stored run: its `run.db`, only read, also while a coordinator serves the run."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from actors.coordinator.storage.database import Database
from protocol.run_db import RUN_DB, read_only_uri


class ReadOnlyDatabase(Database):
    """`run.db` for the reads of the stores; a write is a bug and raises RuntimeError."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        path = run_dir / RUN_DB
        if not path.is_file():
            raise ValueError(f"{run_dir} is not a run folder: it has no {RUN_DB}")
        self._db = sqlite3.connect(read_only_uri(path), uri=True)
        self._open = False
        try:
            tables = {name for (name,) in self.rows("SELECT name FROM sqlite_schema")}
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise ValueError(f"can't read {path}: {error}") from error
        if not {"decision", "first_look"} <= tables:
            self._db.close()
            raise ValueError(
                f"{run_dir} was made by an older version, which did not store its decisions"
            )

    def write(self, statement: str, values: tuple[object, ...] = ()) -> None:
        raise RuntimeError(f"a read-only run.db is never written: {statement}")

    def close(self) -> None:
        """Close the file."""
        self._db.close()
