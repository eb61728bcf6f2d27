"""`run.db` opened by those who only look."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from protocol import read_only


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database with a write-ahead log, closed as a run closes it."""
    path = tmp_path / "run.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE said (word TEXT)")
        db.execute("INSERT INTO said VALUES ('done')")
    return path


def test_a_folder_that_takes_nothing_can_be_read(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that is read-only SQLite must not want files of its own beside the run's."""
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    with closing(sqlite3.connect(read_only.read_only_uri(database), uri=True)) as db:
        assert [("done",)] == db.execute("SELECT word FROM said").fetchall()
        assert [database] == list(database.parent.iterdir())


def test_what_a_live_run_has_written_is_seen_from_a_folder_that_takes_nothing(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as there is a log, its rows are read, too."""
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    with closing(sqlite3.connect(database, isolation_level=None)) as writer:
        writer.execute("INSERT INTO said VALUES ('more')")
        with closing(sqlite3.connect(read_only.read_only_uri(database), uri=True)) as db:
            assert 2 == db.execute("SELECT COUNT(*) FROM said").fetchone()[0]
