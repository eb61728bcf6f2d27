"""The file `run.db`: one connection, one writer, one transaction a round.

A full or read-only disk raises `StoreFullError`; then no statement of that round takes effect.
"""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import IO, Any

from protocol.run_db import RUN_DB
from protocol.run_views import COMPUTED_COLUMNS, SQL_FUNCTIONS, views

LOCK_NAME = "coordinator.lock"


class StoreFullError(Exception):
    """The disk is full or read-only: report it, wait for space, begin again from disk."""


class StoreInUseError(Exception):
    """Another coordinator serves this run."""


def ensure_unlocked(run_dir: Path) -> None:
    """Raise StoreInUseError while a coordinator serves that run.

    Call it before listening: a second coordinator would take the socket file of the first.
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
        self.run_dir = run_dir
        # Held for the life of the process: only one coordinator may serve a run.
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            self._lock = (run_dir / LOCK_NAME).open("w")
        except OSError as error:  # for example, a read-only disk
            raise StoreFullError(f"{LOCK_NAME}: {error.strerror}") from error
        try:
            _lock(self._lock, run_dir)
        except StoreInUseError:
            self._lock.close()
            raise
        self._open = False
        try:
            with _disk_full_as_error():
                self._db = sqlite3.connect(run_dir / RUN_DB, isolation_level=None)
                self._prepare()
        except BaseException:
            # The exception may keep this object alive, and the lock would block the next try.
            self._lock.close()
            raise

    def _prepare(self) -> None:
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA foreign_keys = ON")
            for name, arguments, function in SQL_FUNCTIONS:
                self._db.create_function(name, arguments, function, deterministic=True)
            # One transaction: a reader never sees a part of a version's tables.
            statements = ["BEGIN IMMEDIATE", *missing_columns(self._db), schema(), "COMMIT"]
            self._db.executescript(";\n".join(statements))
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

    def insert(self, table: str, *, skip_duplicate: bool = False, **values: object) -> None:
        """Add a row to this round's transaction; columns that are not named have their default.

        `skip_duplicate`: do nothing when a unique key of the table forbids the row.
        """
        statement = _insert_statement(table, tuple(values), skip_duplicate=skip_duplicate)
        self.write(statement, tuple(values.values()))

    def update(
        self, table: str, columns: Mapping[str, object], condition: str, values: tuple[object, ...]
    ) -> None:
        """Add new values of some columns to this round's transaction."""
        # Table and columns are names in our code, never data.
        assignments = ", ".join(f"{column} = ?" for column in columns)
        statement = f"UPDATE {table} SET {assignments} {condition}"  # noqa: S608
        self.write(statement, (*columns.values(), *values))

    def commit(self) -> bool:
        """Make everything since the last commit durable; False when nothing was written."""
        if not self._open:
            return False
        with _disk_full_as_error():
            self._db.execute("COMMIT")
        self._open = False
        return True

    def rows(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query, those written in this round included."""
        return self._db.execute(statement, values).fetchall()

    def select(
        self, table: str, columns: Iterable[str], condition: str, values: tuple[object, ...]
    ) -> list[tuple[Any, ...]]:
        """Return some columns of a table's rows; `condition` begins with WHERE."""
        # Table and columns are names in our code, never data.
        return self.rows(f"SELECT {_quoted(columns)} FROM {table} {condition}", values)  # noqa: S608

    def row(self, statement: str, values: tuple[object, ...] = ()) -> tuple[Any, ...] | None:
        """Return the first row of a query, if there is one."""
        found: tuple[Any, ...] | None = self._db.execute(statement, values).fetchone()
        return found

    def value(self, statement: str, values: tuple[object, ...] = ()) -> Any:
        """Return the first column of a query that has at least one row."""
        return self._db.execute(statement, values).fetchone()[0]

    def has_table(self, name: str) -> bool:
        """Whether the file has that table: runs of older versions lack some."""
        return self.row("SELECT 1 FROM sqlite_schema WHERE name = ?", (name,)) is not None

    def columns(self, table: str) -> frozenset[str]:
        """Return the columns of a table: runs of older versions lack some."""
        return frozenset(row[1] for row in self.rows(f"PRAGMA table_info({table})"))

    def close(self) -> None:
        """Close the file without a commit, and unlock the run for the next coordinator."""
        self._db.close()
        self._lock.close()


def _quoted(columns: Iterable[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


@lru_cache
def _insert_statement(table: str, columns: tuple[str, ...], *, skip_duplicate: bool) -> str:
    verb = "INSERT OR IGNORE" if skip_duplicate else "INSERT"
    marks = ", ".join("?" for _ in columns)
    return f"{verb} INTO {table} ({_quoted(columns)}) VALUES ({marks})"


def schema() -> str:
    """Return the tables and views of `run.db` as SQL."""
    tables = resources.files(__package__).joinpath("schema.sql").read_text(encoding="utf-8")
    return f"{tables};\n{views()}"


def missing_columns(run: sqlite3.Connection) -> list[str]:
    """Return the statements that add and fill the columns that the tables of an older run lack."""
    statements = []
    model = sqlite3.connect(":memory:")
    with closing(model):
        model.executescript(schema())
        found = model.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        for (table,) in found.fetchall():
            there = {row[1] for row in run.execute(f"PRAGMA table_info({table})")}
            added = []
            for _, name, kind, not_null, default, _ in model.execute(f"PRAGMA table_info({table})"):
                if there and name not in there:
                    rule = f" NOT NULL DEFAULT {default}" if not_null else ""
                    statements.append(f"ALTER TABLE {table} ADD COLUMN {name} {kind}{rule}")
                    added.append(name)
            computed = COMPUTED_COLUMNS.get(table, {})
            values = [f"{name} = {computed[name]}" for name in added if name in computed]
            if values:
                # Table, columns and functions are names in our code, never data.
                statements.append(f"UPDATE {table} SET {', '.join(values)}")  # noqa: S608
    return statements


@contextmanager
def _disk_full_as_error() -> Iterator[None]:
    """Turn SQLite's errors for a full or read-only disk into `StoreFullError`."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if any(sign in text for sign in ("full", "readonly", "disk I/O", "unable to open")):
            raise StoreFullError(text) from error
        raise
