"""The rows of a run's views: attempts, verdicts, calls, leases, tasks (protocol/run_views.sql).

The export and result.json use them, and the page's rows agree with them (a test holds that).  The
views are made for the connection alone, with this version's text, so that a run of an older version
has them, too: the columns that it lacks are computed from its stored values.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import msgspec

from protocol.run_views import COMPUTED_COLUMNS, SQL_FUNCTIONS, views
from protocol.values import Value

# Columns and tables that came after the first version and that no stored value can replace.
LATER_COLUMNS = {
    "node": {"confirmed": "0", "pinned": "0", "pruned": "0"},
    "call": {"effort": "''", "cache_write_tokens": "0"},
}
LATER_TABLES = {
    "first_look": ("task", "number", "score_us", *COMPUTED_COLUMNS["first_look"]),
    "decision": ("id", "task", "number", "stage"),
}


class AttemptRecord(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One attempt, as the view `attempts` shows it; None: not measured, or not known yet."""

    task: str
    number: int
    parent: int
    kind: str  # improve, repair, inject
    state: str  # the stage that it is in; "done" once it has a verdict
    idea: str | None  # the beginning of its advice, on one line
    verdict: str | None
    reason: str | None
    failed_in: str | None  # the stage that decided; "" for correct
    speedup: float | None
    low: float | None  # the 95 % interval
    high: float | None
    us: float | None  # a call, on the clock of the task's reference
    confirmed: bool | None
    pinned: bool
    pruned: bool  # it, or a node above it
    build_s: float | None
    check_s: float | None
    timing_s: float | None
    stages: str | None  # that it went through, in order
    calls: int  # to models
    usd: float | None  # None: at least one of its calls has no known price
    input_tokens: int
    output_tokens: int
    model_s: float  # that its calls took together
    at: float | None  # when its verdict was recorded, seconds since 1970


def prepare_views(connection: sqlite3.Connection) -> None:
    """Make the views for this connection, which may be read-only; the run must have begun.

    Call it once a connection.  The views are named as in `run.db` and go before those.
    """
    for name, arguments, function in SQL_FUNCTIONS:
        connection.create_function(name, arguments, function, deterministic=True)
    statements = ["PRAGMA temp_store = MEMORY"]
    for table, columns in LATER_TABLES.items():
        if not _columns_of(connection, table):
            statements.append(f"CREATE TEMP TABLE IF NOT EXISTS {table} ({', '.join(columns)})")
    for table in {**COMPUTED_COLUMNS, **LATER_COLUMNS}:
        there = _columns_of(connection, table)
        expressions = {**COMPUTED_COLUMNS.get(table, {}), **LATER_COLUMNS.get(table, {})}
        missing = [f"{how} AS {name}" for name, how in expressions.items() if name not in there]
        if there and missing:
            # Table, columns and functions are names in our code, never data.
            query = f"SELECT *, {', '.join(missing)} FROM main.{table}"  # noqa: S608
            statements.append(f"CREATE TEMP VIEW IF NOT EXISTS {table} AS {query}")
    text = views().replace("DROP VIEW IF EXISTS ", "DROP VIEW IF EXISTS temp.")
    statements.append(text.replace("CREATE VIEW", "CREATE TEMP VIEW"))
    connection.executescript(";\n".join(statements))


def attempt_rows(connection: sqlite3.Connection, task: str = "") -> Iterator[AttemptRecord]:
    """Yield every attempt of a task, or of all tasks, also those under way, by number."""
    condition = "WHERE task = ?" if task else ""
    query = f"SELECT * FROM attempts {condition} ORDER BY task, number"  # noqa: S608  # our text
    for row in _rows(connection, query, (task,) if task else ()):
        yield msgspec.convert(row, AttemptRecord, strict=False)


def _columns_of(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")}


def _rows(
    connection: sqlite3.Connection, query: str, values: tuple[object, ...]
) -> Iterator[dict[str, object]]:
    cursor = connection.execute(query, values)
    names = [column[0] for column in cursor.description]
    for values in cursor:
        yield dict(zip(names, values, strict=True))
