"""`run.db` opened for reading."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from protocol import run_db


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database with a write-ahead log, closed as a run closes it."""
    path = tmp_path / "run.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE entry (word TEXT)")
        db.execute("INSERT INTO entry VALUES ('done')")
    return path


def test_a_database_in_a_read_only_folder_can_be_read(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a read-only disk SQLite must not need files of its own next to the run's."""
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    with closing(sqlite3.connect(run_db.read_only_uri(database), uri=True)) as db:
        assert [("done",)] == db.execute("SELECT word FROM entry").fetchall()
        assert [database] == list(database.parent.iterdir())


def test_the_rows_of_a_live_run_are_read_from_a_read_only_folder(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While there is a write-ahead log, its rows are read, too."""
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    with closing(sqlite3.connect(database, isolation_level=None)) as writer:
        writer.execute("INSERT INTO entry VALUES ('more')")
        with closing(sqlite3.connect(run_db.read_only_uri(database), uri=True)) as db:
            assert 2 == db.execute("SELECT COUNT(*) FROM entry").fetchone()[0]
