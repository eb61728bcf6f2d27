"""The ledger of a run: its nodes, attempts, replies and finished stages; and how two differ.

It is read from `run.db` alone.  Two runs with one seed and one script must have the same ledger,
whatever faults the second one had.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from protocol.run_db import RUN_DB
from protocol.values import Value

NODES = "SELECT task, number, parent, source, advice, word FROM node"
ATTEMPTS = "SELECT task, number, parent, kind, plan, candidate, state FROM attempt"
# Without the requests: they contain measured times, which differ from run to run.
CALLS = "SELECT work, role, reply FROM call"
DONE = "SELECT work FROM lease WHERE outcome = 'done'"
# Work that has cost an evaluator already and is not done: one more loss would be a verdict.
CHARGED = (
    "SELECT COUNT(*) FROM lease AS charged WHERE running = 1 AND outcome IN ('lost', 'expired')"
    " AND NOT EXISTS (SELECT 1 FROM lease WHERE work = charged.work AND outcome = 'done')"
)
Row = tuple[object, ...]


class RunLedger(Value, frozen=True, kw_only=True):
    """The rows that must not depend on faults."""

    rows: tuple[Row, ...]

    def lost(self, disturbed: RunLedger) -> tuple[Row, ...]:
        """Return the rows of this ledger that the disturbed one lacks."""
        disturbed_rows = set(disturbed.rows)
        return tuple(row for row in self.rows if row not in disturbed_rows)

    def doubled(self, disturbed: RunLedger) -> tuple[Row, ...]:
        """Return the rows that the disturbed ledger has in addition, or more often."""
        surplus = list(disturbed.rows)
        for row in self.rows:
            if row in surplus:
                surplus.remove(row)
        return tuple(surplus)


def rows(run_dir: Path, query: str) -> list[Row]:
    """Return a query's rows; none while the run has no tables yet."""
    try:
        uri = f"{(run_dir / RUN_DB).resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=2.0)) as db:
            return db.execute(query).fetchall()
    except sqlite3.OperationalError:
        return []


def number(run_dir: Path, query: str) -> int:
    """Return a query's only figure; 0 while there is none."""
    result = rows(run_dir, query)
    value = result[0][0] if result else 0
    return int(value) if isinstance(value, int | float) else 0


def ledger(run_dir: Path) -> RunLedger:
    """Return a run's ledger."""
    lines: list[Row] = []
    for name, query in (("node", NODES), ("attempt", ATTEMPTS), ("call", CALLS), ("done", DONE)):
        lines += sorted(((name, *row) for row in rows(run_dir, query)), key=repr)
    return RunLedger(rows=tuple(lines))


def longest_outage_s(run_dir: Path) -> float:
    """Return the longest time in which no piece of work ended with a result."""
    ended = [row[0] for row in rows(run_dir, "SELECT ended FROM lease WHERE outcome = 'done'")]
    times = sorted(at for at in ended if isinstance(at, float))
    return max((later - at for at, later in pairwise(times)), default=0.0)


def show(row: Row) -> str:
    """Return a row as a line of text."""
    return " ".join(str(part)[:60].replace("\n", "⏎") for part in row)[:160]
