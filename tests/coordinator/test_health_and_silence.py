"""Answers to heartbeats, the worker table, and the databases of older versions."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from actors.coordinator.fleet_health import WRITE_S, FleetHealth
from actors.coordinator.scheduling.scheduler import Scheduler
from actors.coordinator.storage.activity_store import ActivityStore
from actors.coordinator.storage.database import Database, schema
from protocol.messages import Heartbeat, Hello
from protocol.values import Role

LEASE_S = 15.0
# The first version's table, without the columns of later versions.
OLD_WORKER = """CREATE TABLE worker (
    slot TEXT PRIMARY KEY, role TEXT NOT NULL, incarnation TEXT NOT NULL, pid INTEGER NOT NULL,
    state TEXT NOT NULL, doing TEXT NOT NULL, since REAL NOT NULL, starts INTEGER NOT NULL,
    how TEXT NOT NULL) STRICT"""


def hello(scheduler: Scheduler, role: Role, slot: str, now: float) -> None:
    scheduler.connect_peer(Hello(role=role, slot=slot, incarnation=slot, pid=1), now)


def test_silent_workers_are_reported_only_after_a_lease_time(tmp_path: Path) -> None:
    """After a partition the workers get a full lease to reconnect."""
    with closing(Database(tmp_path)) as database:
        scheduler = Scheduler(lease_s=LEASE_S, epoch=0)
        health = FleetHealth(scheduler, ActivityStore(database))
        hello(scheduler, Role.EVALUATOR, "evaluator-0", 0.0)
        scheduler.expire_leases(100.0)
        hello(scheduler, Role.SUPERVISOR, "supervisor", 100.0)
        heartbeat = Heartbeat(sent_at=7.0)
        early = health.acknowledge(scheduler.peers["supervisor"], heartbeat, 100.0 + LEASE_S - 1)
        late = health.acknowledge(scheduler.peers["supervisor"], heartbeat, 100.0 + LEASE_S)

        assert early is not None
        assert late is not None
        assert (7.0, ()) == (early.sent_at, early.silent_incarnations)
        assert ("evaluator-0",) == late.silent_incarnations
        assert health.acknowledge(scheduler.peers["supervisor"], Heartbeat(), 200.0) is None


def test_round_trips_and_leases_reach_the_worker_table(tmp_path: Path) -> None:
    """A heartbeat's figures are in run.db within a second; a small change is not written."""
    with closing(Database(tmp_path)) as database:
        activity = ActivityStore(database)
        scheduler = Scheduler(lease_s=LEASE_S, epoch=0)
        health = FleetHealth(scheduler, activity)
        hello(scheduler, Role.EVALUATOR, "evaluator-0", 0.0)
        activity.worker_up("evaluator-0", "evaluator", "evaluator-0", 1, 0.0)
        seen = []
        for number, rtt_ms in enumerate((2.0, 2.1, 9.0)):
            now = 1.0 + number * 2 * WRITE_S
            health.acknowledge(
                scheduler.peers["evaluator-0"], Heartbeat(sent_at=1.0, rtt_ms=rtt_ms), now
            )
            health.write_stats(now)
            seen.append(database.value("SELECT rtt_ms FROM worker"))

        assert [2.0, 2.0, 9.0] == seen


def test_a_successor_and_a_device_after_quarantine_are_written_again(tmp_path: Path) -> None:
    """A dead worker has no leases; its successor's figures are written even if they are equal."""
    with closing(Database(tmp_path)) as database:
        activity = ActivityStore(database)
        scheduler = Scheduler(lease_s=LEASE_S, epoch=0)
        health = FleetHealth(scheduler, activity)
        seen = []
        for number, incarnation in enumerate(("a", "b")):
            now = 1.0 + number * 10 * WRITE_S
            message = Hello(role=Role.EVALUATOR, slot="evaluator-0", incarnation=incarnation, pid=1)
            scheduler.connect_peer(message, now)
            activity.worker_up("evaluator-0", "evaluator", incarnation, 1, now)
            seen.append(database.row("SELECT rtt_ms, quarantine FROM worker"))
            health.acknowledge(
                scheduler.peers[incarnation], Heartbeat(sent_at=1.0, rtt_ms=2.0), now
            )
            health.write_stats(now)
            seen.append(database.row("SELECT rtt_ms, quarantine FROM worker"))
            activity.worker_quarantined("evaluator-0", "a known kernel fails on it")
            activity.worker_gone("evaluator-0", incarnation, "lost", "signal 9", now)

    assert [(None, ""), (2.0, ""), (None, ""), (2.0, "")] == seen


def test_the_tables_of_an_older_run_get_the_new_columns(tmp_path: Path) -> None:
    """A run of an earlier version resumes: its rows stay, new columns have their defaults."""
    with closing(sqlite3.connect(tmp_path / "run.db")) as old:
        old.executescript(OLD_WORKER)
        old.execute("INSERT INTO worker VALUES ('coder-0', 'coder', 'x', 1, 'up', '', 1.0, 3, '')")
        old.commit()
    with closing(Database(tmp_path)) as database:
        ActivityStore(database).worker_up("coder-0", "coder", "y", 2, 5.0)
        database.commit()
        row = database.row("SELECT starts, leases, rtt_ms, quarantine FROM worker")
        columns = [name for _, name, *_ in database.rows("PRAGMA table_info(worker)")]
    with closing(sqlite3.connect(":memory:")) as new:
        new.executescript(schema())
        expected = [name for _, name, *_ in new.execute("PRAGMA table_info(worker)")]

    assert (4, 0, None, "") == row
    assert expected == columns
