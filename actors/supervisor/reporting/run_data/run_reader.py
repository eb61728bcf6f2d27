"""A read-only reader of `run.db`: the one source of all that users see.

The screens, the results and the report use it.  It never writes, so it can read a live run.  A
database that does not exist yet, or is not ready, reads as nothing new.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from actors.supervisor.reporting.run_data import formatting, run_tables
from actors.supervisor.reporting.run_data.run_tables import AttemptRecord
from actors.supervisor.reporting.run_data.snapshot import (
    AttemptEdit,
    AttemptUnderWay,
    DirectiveState,
    NodeView,
    ReturnedWork,
    Snapshot,
    Spend,
    SpendRow,
    TaskState,
    WorkerState,
)
from protocol.directives import REJECTED_BY_PERSON
from protocol.questions import PERSON
from protocol.run_db import RUN_DB, read_only_uri
from protocol.values import Outcome, Plan, Reference, Task, Verdict

INJECTED = "inject"  # the value of `attempt.kind` for a person's source
CONFIRMED = 1  # the value of `node.confirmed` after a second look
# Not the view `spend`: a run of an older version lacks it.
SPEND_QUERY = (
    "SELECT substr(work, 1, instr(work, '/') - 1),"
    " CAST(substr(work, instr(work, '/') + 1) AS INTEGER), role, model, sum(usd IS NULL), sum(usd),"
    " count(*), sum(stop = 'lost'), sum(input_tokens), sum(cached_tokens), sum(output_tokens),"
    " sum(seconds) FROM call GROUP BY 1, 2, 3, 4 ORDER BY min(id)"
)
MANY_RETURNS = 3  # of one piece of work: fewer are usual where machines come and go
RETURNED_QUERY = (
    "SELECT work, count(*), max(ended - granted) FROM lease WHERE outcome = 'returned'"
    " GROUP BY work HAVING count(*) >= ? AND NOT EXISTS"
    " (SELECT 1 FROM lease later WHERE later.work = lease.work AND later.outcome = 'done')"
)
RETURN_REASON_QUERY = (
    "SELECT detail FROM event WHERE what = 'lease returned' AND subject = ? ORDER BY id DESC"
)
EDITS_QUERY = (
    "SELECT one.number, one.parent, one.word, one.advice, one.plan, parent.source, one.source,"
    " one.outside FROM node one LEFT JOIN node parent ON parent.task = one.task"
    " AND parent.number = one.parent WHERE one.task = ? AND one.number > 0 ORDER BY one.number"
)


class RunReader:
    """One read-only connection, opened as soon as the database exists."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / RUN_DB
        self._connection: sqlite3.Connection | None = None
        self._has_views = False
        self._version: int | None = None
        self._nodes: dict[tuple[str, int], NodeView] = {}
        self._last_node = 0

    def poll(self) -> Snapshot | None:
        """Return the run as it is now, or None when nothing was written since the last poll.

        Raises sqlite3.DatabaseError when the file is not a database (any more).
        """
        try:
            connection = self._open()
            if connection is None:
                return None
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            if version == self._version:
                return None
            connection.execute("BEGIN")
            try:
                snapshot = self._read(connection)
            finally:
                connection.execute("COMMIT")
        except sqlite3.OperationalError:
            # Not all tables exist yet, or the writer is recovering: the next poll will read them.
            return None
        self._version = version
        return snapshot

    def source_of(self, task: str, number: int) -> str:
        """Return the source of one node."""
        return self._text("SELECT source FROM node WHERE task = ? AND number = ?", task, number)

    def task_source(self, task: str) -> str:
        """Return the task's own source."""
        return self._text("SELECT source FROM task WHERE name = ?", task)

    def task_modules(self, task: str) -> dict[str, str]:
        """Return the modules in the task's folder that it imports: path -> source.

        A file that holds the task's source, such as a winner, needs them in its own folder.
        """
        blob: bytes = self._row("SELECT settings FROM task WHERE name = ?", task)[0]
        return msgspec.msgpack.decode(blob, type=Task).modules

    def edits_outside_anchors(self, task: str, number: int) -> list[str]:
        """Return the changes of one node outside its plan's anchors."""
        text = self._text("SELECT outside FROM node WHERE task = ? AND number = ?", task, number)
        return msgspec.json.decode(text or "[]", type=list[str])

    def attempt_edits(self, task: str) -> Iterator[AttemptEdit]:
        """Yield the edit of each attempt of a task, ordered by number."""
        connection = self._open()
        rows = [] if connection is None else connection.execute(EDITS_QUERY, (task,))
        for number, parent, outcome, advice, plan, before, source, outside in rows:
            yield AttemptEdit(
                number=number,
                parent=parent,
                outcome=outcome,
                advice=advice,
                plan=msgspec.msgpack.decode(plan, type=Plan) if plan else None,
                before=before or "",
                source=source,
                outside=msgspec.json.decode(outside or "[]", type=tuple[str, ...]),
            )

    def spend_by_node(self) -> tuple[SpendRow, ...]:
        """Return the spend of each node and role."""
        connection = self._open()
        return () if connection is None else tuple(_spend(connection))

    def attempt_rows(self) -> tuple[AttemptRecord, ...]:
        """Return every attempt of the run with its figures, also those under way."""
        connection = self._open()
        if connection is None:
            return ()
        if not self._has_views:
            run_tables.prepare_views(connection)
            self._has_views = True
        return tuple(run_tables.attempt_rows(connection))

    def models_that_answered(self) -> tuple[str, ...]:
        """Return the models of the run's calls, in the order of their first."""
        connection = self._open()
        if connection is None:
            return ()
        rows = connection.execute("SELECT model FROM call GROUP BY model ORDER BY MIN(id)")
        return tuple(model for (model,) in rows)

    def is_from_person(self, task: str, number: int) -> bool:
        """Whether the source of an attempt is a person's."""
        connection = self._open()
        query = "SELECT 1 FROM attempt WHERE task = ? AND number = ? AND kind = ?"
        row = connection.execute(query, (task, number, INJECTED)).fetchone() if connection else None
        return row is not None

    def lease_counts(self) -> dict[str, int]:
        """Return the number of leases by outcome; "held" for those that are open."""
        connection = self._open()
        query = "SELECT COALESCE(outcome, 'held'), COUNT(*) FROM lease GROUP BY 1 ORDER BY 1"
        try:
            return dict(connection.execute(query).fetchall()) if connection else {}
        except sqlite3.OperationalError:
            return {}  # the table does not exist yet

    def ran_candidate_code(self, incarnation: str) -> bool:
        """Whether candidate code ran in that worker at its last message."""
        connection = self._open()
        query = (
            "SELECT 1 FROM lease WHERE incarnation = ? AND running = 1"
            " AND (ended IS NULL OR outcome IN ('lost', 'expired'))"
        )
        try:
            found = connection.execute(query, (incarnation,)).fetchone() if connection else None
        except sqlite3.OperationalError:
            return False  # the table does not exist yet
        return found is not None

    def close(self) -> None:
        """Close the database."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._has_views = False

    # --- reading -----------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection | None:
        if self._connection is None and self._path.exists():
            uri = read_only_uri(self._path)
            self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=1.0)
        return self._connection

    def _row(self, query: str, *values: object) -> tuple[Any, ...]:
        connection = self._open()
        if connection is None:
            raise FileNotFoundError(f"{self._path} is not there")
        row: tuple[Any, ...] | None = connection.execute(query, values).fetchone()
        if row is None:
            raise LookupError(f"{self._path} has no such row: {values}")
        return row

    def _text(self, query: str, *values: object) -> str:
        return str(self._row(query, *values)[0])

    def _read(self, connection: sqlite3.Connection) -> Snapshot | None:
        run = next(_named_rows(connection, "SELECT * FROM run"), None)
        if run is None:
            return None
        self._read_new_nodes(connection)
        spend = list(_spend(connection))
        return Snapshot(
            run_id=run["run_id"],
            status=run["status"],
            reason=run["reason"] or "",
            seconds=run["seconds"] or 0.0,
            # A run of an older version lacks these columns.
            is_paused=bool(run.get("paused")),
            is_finishing=bool(run.get("finishing")),
            cap_usd=run.get("cap_usd"),
            directives=tuple(_directives(connection)),
            answered=sum(row.spend.calls for row in spend if row.model == PERSON),
            tasks=tuple(self._tasks(connection, spend)),
            workers=tuple(_workers(connection)),
            returned=tuple(_returned(connection)),
        )

    def _tasks(
        self, connection: sqlite3.Connection, spend: Sequence[SpendRow]
    ) -> Iterator[TaskState]:
        nodes: dict[str, list[NodeView]] = {}
        for (task, _), node in sorted(self._nodes.items()):
            nodes.setdefault(task, []).append(node)
        spend_of: dict[str, list[Spend]] = {}
        for row in spend:
            spend_of.setdefault(row.task, []).append(row.spend)
        under_way = _under_way(connection, spend)
        for name, budget, status, problem, blob in connection.execute(
            "SELECT name, budget, status, problem, reference FROM task ORDER BY rowid"
        ):
            yield TaskState(
                name=name,
                budget=budget,
                status=status or "",
                problem=problem or "",
                reference=msgspec.msgpack.decode(blob, type=Reference) if blob else None,
                nodes=tuple(nodes.get(name, ())),
                under_way=tuple(under_way.get(name, ())),
                spend=formatting.total_spend(spend_of.get(name, [])),
            )

    def _read_new_nodes(self, connection: sqlite3.Connection) -> None:
        """Read new nodes, and old ones with a second look or a rejection: no other can change."""
        rows = connection.execute(
            "SELECT id, task, number, parent, advice, verdict, score_us, at, confirmed FROM node"
            " WHERE id > ? OR confirmed > 0 OR word = ? ORDER BY id",
            (self._last_node, Outcome.REJECTED),
        )
        first_looks = _first_looks(connection)
        for row_id, task, number, parent, advice, blob, score_us, at, confirmed in rows:
            self._last_node = max(self._last_node, row_id)
            verdict = _verdict(blob)
            is_by_person = verdict.reason.startswith(REJECTED_BY_PERSON)
            self._nodes[task, number] = NodeView(
                task=task,
                number=number,
                parent=parent,
                advice=advice,
                verdict=verdict,
                score_us=score_us,
                at=at,
                confirmed=confirmed == CONFIRMED,
                unconfirmable=confirmed > CONFIRMED,
                first_look=None if is_by_person else first_looks.get((task, number)),
            )


def _first_looks(connection: sqlite3.Connection) -> dict[tuple[str, int], Verdict]:
    try:
        rows = connection.execute("SELECT task, number, verdict FROM first_look").fetchall()
    except sqlite3.OperationalError:
        return {}  # a run of an older version, which did not store them
    return {(task, number): _verdict(blob) for task, number, blob in rows}


def _verdict(blob: bytes) -> Verdict:
    """Return a verdict without its large parts: of its profile only the labels stay."""
    verdict = msgspec.msgpack.decode(blob, type=Verdict)
    labels = {"labels": ", ".join(verdict.labels)} if verdict.labels else None
    return msgspec.structs.replace(verdict, log="", profile=labels, groups=None, facts=None)


def _spend(connection: sqlite3.Connection) -> Iterator[SpendRow]:
    for task, node, role, model, unpriced, usd, *rest in connection.execute(SPEND_QUERY):
        calls, lost, input_tokens, cached_tokens, output_tokens, seconds = rest
        yield SpendRow(
            task=task,
            node=node,
            role=role,
            model=model,
            spend=Spend(
                calls=calls,
                lost=lost,
                usd=None if unpriced else usd,
                input_tokens=input_tokens,
                cached_tokens=cached_tokens,
                output_tokens=output_tokens,
                seconds=seconds,
            ),
        )


def _under_way(
    connection: sqlite3.Connection, spend: Sequence[SpendRow]
) -> dict[str, list[AttemptUnderWay]]:
    found: dict[str, list[AttemptUnderWay]] = {}
    rows = connection.execute(
        "SELECT task, number, parent, state FROM attempt WHERE state != 'done' ORDER BY number"
    )
    calls: Counter[tuple[str, int]] = Counter()
    for row in spend:
        calls[row.task, row.node] += row.spend.calls
    for task, number, parent, state in rows:
        found.setdefault(task, []).append(
            AttemptUnderWay(number=number, parent=parent, state=state, calls=calls[task, number])
        )
    return found


def _workers(connection: sqlite3.Connection) -> Iterator[WorkerState]:
    for row in _named_rows(connection, "SELECT * FROM worker ORDER BY slot"):
        # A run of an older version lacks some of these columns; they have defaults.
        fields = {name: row[name] for name in WorkerState.__struct_fields__ if name in row}
        yield msgspec.convert(fields, WorkerState)


def _returned(connection: sqlite3.Connection) -> Iterator[ReturnedWork]:
    for work, times, longest_s in connection.execute(RETURNED_QUERY, (MANY_RETURNS,)).fetchall():
        (detail,) = connection.execute(RETURN_REASON_QUERY, (work,)).fetchone() or ("",)
        reason = detail.partition(" ")[2]  # after the worker's incarnation
        yield ReturnedWork(work=work, times=times, longest_s=longest_s, reason=reason)


def _directives(connection: sqlite3.Connection) -> Iterator[DirectiveState]:
    try:
        rows = list(_named_rows(connection, "SELECT * FROM directive ORDER BY id"))
    except sqlite3.OperationalError:
        return  # a run of an older version
    for row in rows:
        fields = {name: row[name] for name in DirectiveState.__struct_fields__}
        yield msgspec.convert(fields, DirectiveState)


def _named_rows(connection: sqlite3.Connection, query: str) -> Iterator[dict[str, Any]]:
    cursor = connection.execute(query)
    names = [column[0] for column in cursor.description]
    for values in cursor:
        yield dict(zip(names, values, strict=True))


def checkpoint_database(run_dir: Path) -> None:
    """Fold the write-ahead log into `run.db`, so that the file can be copied alone.

    Only for a run that no process writes any more.
    """
    path = run_dir / RUN_DB
    if path.exists():
        connection = sqlite3.connect(path, isolation_level=None, timeout=1.0)
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()
