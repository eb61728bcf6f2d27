"""The rows of a run's views: attempts, verdicts, calls, leases, tasks (protocol/run_views.sql).

Every reader that lists attempts uses these: the export, result.json, the report and the page.  The
views are made for the connection alone, with this version's text, so that a run of an older version
has them, too: the columns that it lacks are computed from its stored values.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

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
SUMMARY_QUERY = """
    SELECT task, number, parent, kind, idea, verdict, reason, speedup, low, high, us, confirmed, at,
        usd, input_tokens + output_tokens AS tokens, build_s, check_s, timing_s,
        COALESCE((
            SELECT first_look.speedup FROM first_look
            WHERE first_look.task = attempts.task AND first_look.number = attempts.number
        ), speedup) AS first_speedup
    FROM attempts WHERE state = 'done'
"""
ROOT_QUERY = """
    SELECT task, 0 AS number, NULL AS parent, 'root' AS kind, '' AS idea, word AS verdict,
        reason, speedup, low, high, score_us AS us, 0 AS confirmed, at, 0.0 AS usd, 0 AS tokens,
        build_s, check_s, timing_s, speedup AS first_speedup
    FROM node WHERE number = 0
"""


class AttemptRow(Value, frozen=True, kw_only=True, omit_defaults=False):
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


class NodeSummary(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One recorded node, the reference included, as the page lists it."""

    task: str
    number: int
    parent: int | None
    kind: str  # improve, repair, inject, root
    idea: str
    verdict: str
    reason: str
    speedup: float | None
    low: float | None
    high: float | None
    us: float | None
    confirmed: bool
    at: float
    usd: float | None
    tokens: int  # read and written
    build_s: float | None
    check_s: float | None
    timing_s: float | None
    first_speedup: float | None  # of the first look, also where it was confirmed later


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


def attempt_rows(connection: sqlite3.Connection, task: str = "") -> Iterator[AttemptRow]:
    """Yield every attempt of a task, or of all tasks, also those under way, by number."""
    condition = "WHERE task = ?" if task else ""
    query = f"SELECT * FROM attempts {condition} ORDER BY task, number"  # noqa: S608  # our text
    for row in _rows(connection, query, (task,) if task else ()):
        yield msgspec.convert(row, AttemptRow, strict=False)


def node_summaries(
    connection: sqlite3.Connection, keys: Iterable[tuple[str, int]] | None = None
) -> Iterator[NodeSummary]:
    """Yield the recorded nodes, roots included: all of them, or those of `keys` (task, number).

    A key without a recorded node yields nothing.
    """
    query = f"{SUMMARY_QUERY} {{}} UNION ALL {ROOT_QUERY} {{}}"
    if keys is None:
        queries: Iterable[tuple[str, tuple[object, ...]]] = [
            (query.format("", "") + " ORDER BY 1, 2", ())
        ]
    else:
        condition = "AND task = ? AND number = ?"
        one = query.format(condition, condition)
        queries = ((one, (*key, *key)) for key in keys)
    for text, values in queries:
        for row in _rows(connection, text, values):
            yield msgspec.convert(
                {**row, "idea": row["idea"] or "", "reason": row["reason"] or ""},
                NodeSummary,
                strict=False,
            )


def _columns_of(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")}


def _rows(
    connection: sqlite3.Connection, query: str, values: tuple[object, ...]
) -> Iterator[dict[str, object]]:
    cursor = connection.execute(query, values)
    names = [column[0] for column in cursor.description]
    for values in cursor:
        yield dict(zip(names, values, strict=True))
