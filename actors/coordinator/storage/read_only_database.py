"""A run to look back at: its `run.db` read and never written, whoever serves it meanwhile."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from actors.coordinator.storage.database import FILE_NAME, Database
from protocol import read_only


class ReadOnlyDatabase(Database):
    """`run.db` as `Store`, `ActivityStore` and `DecisionStore` read it; a write is a bug and
    raises.
    """

    def __init__(self, run_dir: Path) -> None:
        path = run_dir / FILE_NAME
        if not path.is_file():
            raise ValueError(f"{run_dir} is no run folder: it has no {FILE_NAME}")
        self._db = sqlite3.connect(read_only.read_only_uri(path), uri=True)
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
        raise RuntimeError(f"an archive is only read: {statement}")

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()
