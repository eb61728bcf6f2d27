"""The file behind a run: one connection, one writer, one transaction a round.

A full or read-only disk raises `StoreFullError`; nothing of that round happened then.
"""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import IO, Any

FILE_NAME = "run.db"
LOCK_NAME = "coordinator.lock"


class StoreFullError(Exception):
    """The disk takes no more, or took nothing: say so, wait for room, begin again from disk."""


class StoreInUseError(Exception):
    """Another coordinator serves this run."""


def ensure_unlocked(run_dir: Path) -> None:
    """Raise StoreInUseError while a coordinator serves that run.

    Asked before a second one listens, for that would take the socket file from under the first.
    """
    with suppress(FileNotFoundError), (run_dir / LOCK_NAME).open() as lock:
        _lock(lock, run_dir)


def _lock(file: IO[str], run_dir: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise StoreInUseError(f"another coordinator serves {run_dir}") from error


class Database:
    """`run.db`, opened for writing by its only writer."""

    def __init__(self, run_dir: Path) -> None:
        # Held for the life of the process: two coordinators on one run would both believe it.
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            self._lock = (run_dir / LOCK_NAME).open("w")
        except OSError as error:  # read-only, say
            raise StoreFullError(f"{LOCK_NAME}: {error.strerror}") from error
        try:
            _lock(self._lock, run_dir)
        except StoreInUseError:
            self._lock.close()
            raise
        self._open = False
        try:
            with _disk_full_as_error():
                self._db = sqlite3.connect(run_dir / FILE_NAME, isolation_level=None)
                self._prepare()
        except BaseException:
            # Or our own next try would find the run taken, for as long as the error is held.
            self._lock.close()
            raise

    def _prepare(self) -> None:
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA foreign_keys = ON")
            add_missing_columns(self._db)
            self._db.executescript(schema())
        except BaseException:
            self._db.close()
            raise

    def write(self, statement: str, values: tuple[object, ...] = ()) -> None:
        """Add a statement to this round's transaction."""
        with _disk_full_as_error():
            if not self._open:
                self._db.execute("BEGIN IMMEDIATE")
                self._open = True
            self._db.execute(statement, values)

    def commit(self) -> bool:
        """Make everything since the last commit durable; False when there was nothing."""
        if not self._open:
            return False
        with _disk_full_as_error():
            self._db.execute("COMMIT")
        self._open = False
        return True

    def rows(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query; what this round wrote is seen."""
        return self._db.execute(statement, values).fetchall()

    def row(self, statement: str, values: tuple[object, ...] = ()) -> tuple[Any, ...] | None:
        """Return the first row of a query, if there is one."""
        found: tuple[Any, ...] | None = self._db.execute(statement, values).fetchone()
        return found

    def value(self, statement: str, values: tuple[object, ...] = ()) -> Any:
        """Return the first column of a query that always has a row."""
        return self._db.execute(statement, values).fetchone()[0]

    def close(self) -> None:
        """Close the file, drop what was not committed, and let the next coordinator in."""
        self._db.close()
        self._lock.close()


def schema() -> str:
    """Return the tables of `run.db` as SQL."""
    return resources.files(__package__).joinpath("schema.sql").read_text(encoding="utf-8")


def add_missing_columns(run: sqlite3.Connection) -> None:
    """Give the tables of an older run the columns that this version's schema has besides."""
    model = sqlite3.connect(":memory:")
    with closing(model):
        model.executescript(schema())
        found = model.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        for (table,) in found.fetchall():
            there = {row[1] for row in run.execute(f"PRAGMA table_info({table})")}
            for _, name, kind, not_null, default, _ in model.execute(f"PRAGMA table_info({table})"):
                if there and name not in there:
                    rule = f" NOT NULL DEFAULT {default}" if not_null else ""
                    run.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}{rule}")


@contextmanager
def _disk_full_as_error() -> Iterator[None]:
    """Turn SQLite's words for a disk that takes nothing into one error of ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        words = str(error)
        if any(sign in words for sign in ("full", "readonly", "disk I/O", "unable to open")):
            raise StoreFullError(words) from error
        raise
