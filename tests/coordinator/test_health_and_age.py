"""Heartbeats' answers, and the databases of older versions."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from actors.coordinator.books import Books
from actors.coordinator.database import Database, schema
from actors.coordinator.fleet import Fleet
from actors.coordinator.health import WRITE_S, Health
from protocol.messages import Beat, Hello
from protocol.values import Role

LEASE_S = 15.0
# The first version's table; what later ones added is not in it.
OLD_WORKER = """CREATE TABLE worker (
    slot TEXT PRIMARY KEY, role TEXT NOT NULL, incarnation TEXT NOT NULL, pid INTEGER NOT NULL,
    state TEXT NOT NULL, doing TEXT NOT NULL, since REAL NOT NULL, starts INTEGER NOT NULL,
    how TEXT NOT NULL) STRICT"""


def hello(fleet: Fleet, role: Role, slot: str, now: float) -> None:
    fleet.hello(Hello(role=role, slot=slot, incarnation=slot, pid=1), now)


def test_a_supervisor_hears_who_is_silent_only_after_a_leases_time(tmp_path: Path) -> None:
    """After a partition the workers get as long to be heard of as before it."""
    with closing(Database(tmp_path)) as database:
        fleet = Fleet(lease_s=LEASE_S, epoch=0)
        health = Health(fleet, Books(database))
        hello(fleet, Role.EVALUATOR, "evaluator-0", 0.0)
        fleet.expire(100.0)
        hello(fleet, Role.SUPERVISOR, "supervisor", 100.0)
        beat = Beat(sent=7.0)
        early = health.answer(fleet.peers["supervisor"], beat, 100.0 + LEASE_S - 1)
        late = health.answer(fleet.peers["supervisor"], beat, 100.0 + LEASE_S)

        assert early is not None
        assert late is not None
        assert (7.0, ()) == (early.sent, early.silent)
        assert ("evaluator-0",) == late.silent
        assert health.answer(fleet.peers["supervisor"], Beat(), 200.0) is None


def test_round_trips_and_leases_reach_the_worker_table(tmp_path: Path) -> None:
    """What a beat says stands in run.db within a second; a beat that changes little writes not."""
    with closing(Database(tmp_path)) as database:
        books = Books(database)
        fleet = Fleet(lease_s=LEASE_S, epoch=0)
        health = Health(fleet, books)
        hello(fleet, Role.EVALUATOR, "evaluator-0", 0.0)
        books.worker_up("evaluator-0", "evaluator", "evaluator-0", 1, 0.0)
        seen = []
        for number, rtt_ms in enumerate((2.0, 2.1, 9.0)):
            now = 1.0 + number * 2 * WRITE_S
            health.answer(fleet.peers["evaluator-0"], Beat(sent=1.0, rtt_ms=rtt_ms), now)
            health.write(now)
            seen.append(database.value("SELECT rtt_ms FROM worker"))

        assert [2.0, 2.0, 9.0] == seen


def test_a_successor_and_a_device_that_is_well_again_have_rows_of_their_own(tmp_path: Path) -> None:
    """The dead hold nothing; the next one's figures are written though they are the same."""
    with closing(Database(tmp_path)) as database:
        books = Books(database)
        fleet = Fleet(lease_s=LEASE_S, epoch=0)
        health = Health(fleet, books)
        seen = []
        for number, incarnation in enumerate(("a", "b")):
            now = 1.0 + number * 10 * WRITE_S
            words = Hello(role=Role.EVALUATOR, slot="evaluator-0", incarnation=incarnation, pid=1)
            fleet.hello(words, now)
            books.worker_up("evaluator-0", "evaluator", incarnation, 1, now)
            seen.append(database.row("SELECT rtt_ms, quarantine FROM worker"))
            health.answer(fleet.peers[incarnation], Beat(sent=1.0, rtt_ms=2.0), now)
            health.write(now)
            seen.append(database.row("SELECT rtt_ms, quarantine FROM worker"))
            books.worker_quarantined("evaluator-0", "a known kernel fails on it")
            books.worker_gone("evaluator-0", incarnation, "lost", "signal 9", now)

    assert [(None, ""), (2.0, ""), (None, ""), (2.0, "")] == seen


def test_an_older_runs_tables_get_what_is_new(tmp_path: Path) -> None:
    """A run of an earlier version resumes: its rows stay, new columns have their defaults."""
    with closing(sqlite3.connect(tmp_path / "run.db")) as old:
        old.executescript(OLD_WORKER)
        old.execute("INSERT INTO worker VALUES ('coder-0', 'coder', 'x', 1, 'up', '', 1.0, 3, '')")
        old.commit()
    with closing(Database(tmp_path)) as database:
        Books(database).worker_up("coder-0", "coder", "y", 2, 5.0)
        database.commit()
        row = database.row("SELECT starts, leases, rtt_ms, quarantine FROM worker")
        there = [name for _, name, *_ in database.rows("PRAGMA table_info(worker)")]
    with closing(sqlite3.connect(":memory:")) as new:
        new.executescript(schema())
        wanted = [name for _, name, *_ in new.execute("PRAGMA table_info(worker)")]

    assert (4, 0, None, "") == row
    assert wanted == there
