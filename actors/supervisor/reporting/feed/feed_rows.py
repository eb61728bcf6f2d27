"""Reads of `run.db` for the change feed: rows become the values of `feed_values`.

Each function takes a connection and reads within the caller's transaction.  Tables and columns that
a run of an older version lacks read as empty.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from actors.supervisor.reporting.feed.feed_values import (
    AttemptKey,
    EventRow,
    FeedDirective,
    FeedNode,
    NodeSpend,
    UnderWay,
    WorkerRow,
)
from actors.supervisor.reporting.run_data.snapshot import NodeView, TaskState
from protocol.values import Reference, Value, Verdict

MAX_EVENTS = 512  # as many as the change feed keeps
CONFIRMED = 1

NODE_QUERY = (
    "SELECT node.task, node.number, node.parent, node.advice, node.verdict, node.score_us,"
    " node.at, node.confirmed, attempt.kind, {pinned}, {pruned} FROM node LEFT JOIN attempt"
    " ON attempt.task = node.task AND attempt.number = node.number"
)
# Both read the index `call_spend` alone; a run of an older version lacks it, and they take longer.
SPENDS_QUERY = (
    "SELECT substr(work, 1, instr(work, '/') - 1),"
    " CAST(substr(work, instr(work, '/') + 1) AS INTEGER),"
    " sum(usd IS NULL), sum(usd), sum(input_tokens + output_tokens) FROM call GROUP BY 1, 2"
)
SPEND_QUERY = (
    "SELECT sum(usd IS NULL), sum(usd), sum(input_tokens + output_tokens) FROM call"
    " WHERE work >= ? AND work < ?"
)


class RunRow(Value, frozen=True, kw_only=True):
    """The row of the run."""

    run_id: str
    status: str
    reason: str
    seconds: float
    created: float
    paused: bool = False
    finishing: bool = False
    cap_usd: float | None = None


def has_table(run: sqlite3.Connection, name: str) -> bool:
    """Whether `run.db` has that table."""
    query = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
    return run.execute(query, (name,)).fetchone() is not None


def run_row(run: sqlite3.Connection) -> RunRow | None:
    """Return the row of the run; None while its first coordinator has not written it."""
    cursor = run.execute("SELECT * FROM run")
    row = cursor.fetchone()
    if row is None:
        return None
    names = [column[0] for column in cursor.description]
    # A run of an older version lacks some of these columns; they have defaults.
    known = dict(zip(names, row, strict=True))
    fields = {name: known[name] for name in RunRow.__struct_fields__ if name in known}
    return msgspec.convert(fields, RunRow, strict=False)


def tasks(run: sqlite3.Connection) -> list[TaskState]:
    """Return the tasks in the order in which they were named, without their nodes."""
    rows = run.execute("SELECT name, budget, status, problem, reference FROM task ORDER BY rowid")
    return [
        TaskState(
            name=name,
            budget=budget,
            status=status or "",
            problem=problem or "",
            reference=msgspec.msgpack.decode(blob, type=Reference) if blob else None,
        )
        for name, budget, status, problem, blob in rows
    ]


def nodes(run: sqlite3.Connection) -> Iterator[FeedNode]:
    """Yield all nodes."""
    first_looks = _first_looks(run)
    for row in run.execute(f"{_node_query(run)} ORDER BY node.id"):
        yield _node_row(row, first_looks.get((row[0], row[1])))


def node(run: sqlite3.Connection, key: AttemptKey) -> FeedNode | None:
    """Return one node, if it is recorded."""
    query = f"{_node_query(run)} WHERE node.task = ? AND node.number = ?"
    row = run.execute(query, key).fetchone()
    return None if row is None else _node_row(row, first_look(run, key))


def _node_query(run: sqlite3.Connection) -> str:
    """Return the query of nodes; what a person asked for at them is new."""
    there = {row[1] for row in run.execute("PRAGMA table_info(node)")}
    return NODE_QUERY.format(
        pinned="node.pinned" if "pinned" in there else "0",
        pruned="node.pruned" if "pruned" in there else "0",
    )


def first_look(run: sqlite3.Connection, key: AttemptKey) -> Verdict | None:
    """Return the verdict that a confirmation has replaced."""
    if not has_table(run, "first_look"):
        return None
    query = "SELECT verdict FROM first_look WHERE task = ? AND number = ?"
    row = run.execute(query, key).fetchone()
    return msgspec.msgpack.decode(row[0], type=Verdict) if row else None


def _first_looks(run: sqlite3.Connection) -> dict[AttemptKey, Verdict]:
    if not has_table(run, "first_look"):
        return {}
    rows = run.execute("SELECT task, number, verdict FROM first_look")
    return {
        (task, number): _without_texts(msgspec.msgpack.decode(blob, type=Verdict))
        for task, number, blob in rows
    }


def _node_row(row: tuple[Any, ...], first: Verdict | None) -> FeedNode:
    task, number, parent, advice, blob, score_us, at, confirmed, kind, pinned, pruned = row
    view = NodeView(
        task=task,
        number=number,
        parent=parent,
        advice=advice,
        verdict=_without_texts(msgspec.msgpack.decode(blob, type=Verdict)),
        score_us=score_us,
        at=at,
        confirmed=confirmed == CONFIRMED,
        unconfirmable=confirmed > CONFIRMED,
        first_look=_without_texts(first) if first is not None else None,
    )
    return FeedNode(
        view=view, kind=kind or "improve", is_pinned=bool(pinned), is_pruned=bool(pruned)
    )


def _without_texts(verdict: Verdict) -> Verdict:
    """Return a verdict without its large parts: 10,000 of them are kept in memory."""
    labels = verdict.labels
    profile = {"labels": ", ".join(labels)} if labels else None
    return msgspec.structs.replace(verdict, log="", profile=profile, groups=None, facts=None)


def spends(run: sqlite3.Connection) -> dict[AttemptKey, NodeSpend]:
    """Return the spend of each attempt with a call."""
    rows = run.execute(SPENDS_QUERY)
    return {(task, number): _spend(*values) for task, number, *values in rows}


def spend(run: sqlite3.Connection, key: AttemptKey) -> NodeSpend:
    """Return the spend of one attempt."""
    return _spend(*run.execute(SPEND_QUERY, work_range(key)).fetchone())


def _spend(unpriced: int | None, usd: float | None, tokens: int | None) -> NodeSpend:
    return NodeSpend(usd=None if unpriced else usd or 0.0, tokens=tokens or 0)


def work_range(key: AttemptKey) -> tuple[str, str]:
    """Return the bounds of the work of one attempt, `TASK/NUMBER/STAGE`: from, and before."""
    task, number = key
    return f"{task}/{number}/", f"{task}/{number}0"  # "0" follows "/"


def attempts_under_way(run: sqlite3.Connection) -> list[UnderWay]:
    """Return the attempts without a verdict, then held work that belongs to no such attempt.

    That other work is the measurement of a reference (number 0) and the confirmation of a node;
    their kind is their stage.
    """
    held = {
        _attempt_of(work): (work.rpartition("/")[2], slot, granted)
        for work, slot, granted in run.execute(
            "SELECT work, slot, granted FROM lease WHERE ended IS NULL"
        )
    }
    rows = run.execute(
        "SELECT task, number, parent, kind, state FROM attempt WHERE state != 'done'"
        " ORDER BY task, number"
    ).fetchall()
    attempts = {(task, number) for task, number, *_ in rows}
    others = sorted((*key, stage) for key, (stage, _, _) in held.items() if key not in attempts)
    rows += [(task, number, number, stage, stage) for task, number, stage in others]
    return [
        UnderWay(
            task=task,
            number=number,
            parent=parent,
            kind=kind,
            stage=stage,
            slot=slot,
            since=since,
        )
        for task, number, parent, kind, stage in rows
        for _, slot, since in [held.get((task, number), ("", None, None))]
    ]


def _attempt_of(work: str) -> AttemptKey:
    attempt, _, _stage = work.rpartition("/")
    return attempt_key(attempt)


def attempt_key(key: str) -> AttemptKey:
    """Return the task and the number in `TASK/NUMBER`."""
    task, _, number = key.rpartition("/")
    return task, int(number)


def workers(run: sqlite3.Connection, slots: Iterable[str] | None = None) -> Iterator[WorkerRow]:
    """Yield the workers in `slots`; all of them by default."""
    for slot in (None,) if slots is None else slots:
        where, values = ("", ()) if slot is None else (" WHERE slot = ?", (slot,))
        cursor = run.execute(f"SELECT * FROM worker{where} ORDER BY slot", values)  # noqa: S608
        names = [column[0] for column in cursor.description]
        for row in cursor:
            # A run of an older version lacks some of these columns; they have defaults.
            known = dict(zip(names, row, strict=True))
            fields = {name: known[name] for name in WorkerRow.__struct_fields__ if name in known}
            fields["host"] = str(known["slot"]).partition("@")[2]
            yield msgspec.convert(fields, WorkerRow)


def events(run: sqlite3.Connection, ids: Iterable[int] | None = None) -> list[EventRow]:
    """Return the events of these ids; the last ones by default."""
    query = "SELECT id, at, what, subject, detail FROM event"
    if ids is None:
        rows = run.execute(f"{query} ORDER BY id DESC LIMIT ?", (MAX_EVENTS,)).fetchall()[::-1]
    else:
        found = (run.execute(f"{query} WHERE id = ?", (one,)).fetchone() for one in ids)
        rows = [row for row in found if row is not None]
    return [
        EventRow(id=number, at=at, what=what, subject=subject, detail=detail)
        for number, at, what, subject, detail in rows
    ]


def directives(
    run: sqlite3.Connection, keys: Iterable[str] | None = None
) -> Iterator[FeedDirective]:
    """Yield the directives that were applied or refused: all of them, or those of these keys."""
    if not has_table(run, "directive"):
        return
    query = (
        'SELECT key, verb, task, node, arguments, "by", wanted_at, state, reason, applied_at,'
        " attempt FROM directive"
    )
    if keys is None:
        rows = run.execute(f"{query} ORDER BY id").fetchall()
    else:
        found = (run.execute(f"{query} WHERE key = ?", (key,)).fetchone() for key in keys)
        rows = [row for row in found if row is not None]
    for key, verb, task, number, arguments, by, wanted_at, state, reason, at, attempt in rows:
        yield FeedDirective(
            key=key,
            verb=verb,
            task=task,
            node=number,
            arguments=msgspec.Raw(arguments.encode()),
            by=by,
            wanted_at=wanted_at,
            state=state,
            reason=reason,
            applied_at=at,
            attempt=attempt,
        )


def applied_by_verb(run: sqlite3.Connection) -> dict[str, int]:
    """Return how many directives of each verb were applied."""
    if not has_table(run, "directive"):
        return {}
    query = "SELECT verb, COUNT(*) FROM directive WHERE state = 'applied' GROUP BY 1 ORDER BY 1"
    return dict(run.execute(query).fetchall())
