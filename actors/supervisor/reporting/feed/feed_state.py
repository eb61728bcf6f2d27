"""What a page shows of a run, kept in memory and brought up to date from the table `change`.

Each row is kept as JSON with the number of its last change, so that an answer for any number is a
choice of rows.  The state is shared by all readers and knows none of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from actors.supervisor.reporting.feed import feed_rows
from actors.supervisor.reporting.feed.feed_values import (
    AttemptKey,
    FeedNode,
    NodeSpend,
    UnderWay,
    node_summary,
    task_summary,
)
from actors.supervisor.reporting.run_data.snapshot import NodeView, TaskState
from protocol.values import Value

MAX_STEP = 2_000  # changed attempts that are read one by one; with more, all are read at once
NO_SPEND = NodeSpend()
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One row as JSON, and the number of its last change."""

    seq: int
    json: msgspec.Raw


@dataclass(kw_only=True)
class TaskNodes:
    """The nodes of one task, as far as its figures need them."""

    numbers: set[int] = field(default_factory=set)  # of attempts with a verdict
    faster: dict[int, NodeView] = field(default_factory=dict)  # that may be the best

    def add(self, node: NodeView) -> None:
        """Take a node that is new, or that was judged again."""
        if node.number == 0:
            return
        self.numbers.add(node.number)
        if node.is_correct and node.verdict.is_faster:
            self.faster[node.number] = node
        else:
            self.faster.pop(node.number, None)


class FeedState:
    """The present rows of one run, with the numbers of their changes."""

    def __init__(self) -> None:
        self.seq = 0
        self.has_feed = False  # whether run.db numbers its changes; older runs do not
        self.tasks: dict[str, FeedEntry] = {}
        self.nodes: dict[AttemptKey, FeedEntry] = {}
        self.workers: dict[str, FeedEntry] = {}
        self.events: dict[int, FeedEntry] = {}
        self.directives: dict[str, FeedEntry] = {}
        self.attempts: list[UnderWay] = []
        self.person: dict[str, int] = {}
        self.spends: dict[AttemptKey, NodeSpend] = {}
        self.best: dict[str, int | None] = {}
        self.budget = 0
        self._task_states: dict[str, TaskState] = {}
        self._task_nodes: dict[str, TaskNodes] = {}

    # --- reading -----------------------------------------------------------------------------

    def load(self, run: sqlite3.Connection) -> None:
        """Read everything; `self` is new."""
        self.has_feed = feed_rows.has_table(run, "change")
        seqs: dict[tuple[str, str], int] = {}
        if self.has_feed:
            rows = run.execute("SELECT entity, key, seq FROM change")
            seqs = {(entity, key): seq for entity, key, seq in rows}
        self.seq = max(seqs.values(), default=0)
        self.spends = feed_rows.spends(run)
        self._read_tasks(run)
        for row in feed_rows.nodes(run):
            task, number = row.key
            self._add_node(row, seqs.get(("attempt", f"{task}/{number}"), 0))
        self._write_tasks(self._task_states, self.seq)
        for worker in feed_rows.workers(run):
            self.workers[worker.slot] = _entry(worker, seqs.get(("worker", worker.slot), 0))
        for event in feed_rows.events(run):
            self.events[event.id] = _entry(event, seqs.get(("event", str(event.id)), 0))
        for directive in feed_rows.directives(run):
            seq = seqs.get(("directive", directive.key), 0)
            self.directives[directive.key] = _entry(directive, seq)
        self.person = feed_rows.applied_by_verb(run)
        self.attempts = feed_rows.attempts_under_way(run)

    def can_follow(self, run: sqlite3.Connection) -> bool:
        """Whether `update` can bring this state up to date, instead of reading everything."""
        return self.has_feed and 0 <= _last_seq(run) - self.seq <= MAX_STEP

    def update(self, run: sqlite3.Connection) -> bool:
        """Read what has changed since the last read; return whether there is something new."""
        before, self.attempts = self.attempts, feed_rows.attempts_under_way(run)
        if _last_seq(run) == self.seq:
            return self.attempts != before
        changed: dict[str, dict[str, int]] = {}
        query = "SELECT entity, key, seq FROM change WHERE seq > ? ORDER BY seq"
        for entity, key, seq in run.execute(query, (self.seq,)):
            changed.setdefault(entity, {})[key] = seq
            self.seq = seq
        touched = set(changed.get("task", {}))
        self._read_tasks(run)
        for key_text, seq in changed.get("attempt", {}).items():
            key = feed_rows.attempt_key(key_text)
            self.spends[key] = feed_rows.spend(run, key)
            row = feed_rows.node(run, key)
            if row is not None:
                self._add_node(row, seq)
                touched.add(key[0])
        self._write_tasks(touched, self.seq)
        self._update_activity(run, changed)
        return True

    def _update_activity(self, run: sqlite3.Connection, changed: dict[str, dict[str, int]]) -> None:
        slots = changed.get("worker", {})
        for worker in feed_rows.workers(run, slots):
            self.workers[worker.slot] = _entry(worker, slots[worker.slot])
        ids = {int(key): seq for key, seq in changed.get("event", {}).items()}
        for event in feed_rows.events(run, ids):
            self.events[event.id] = _entry(event, ids[event.id])
        keys = changed.get("directive", {})
        for directive in feed_rows.directives(run, keys):
            self.directives[directive.key] = _entry(directive, keys[directive.key])
        self.person = feed_rows.applied_by_verb(run)
        for old in sorted(self.events)[: -feed_rows.MAX_EVENTS]:
            del self.events[old]

    def _read_tasks(self, run: sqlite3.Connection) -> None:
        self._task_states = {task.name: task for task in feed_rows.tasks(run)}
        self.budget = sum(task.budget for task in self._task_states.values())

    def _add_node(self, row: FeedNode, seq: int) -> None:
        task = self._task_states.get(row.view.task)
        if task is None:
            return
        self._task_nodes.setdefault(task.name, TaskNodes()).add(row.view)
        summary = node_summary(task, row, self.spends.get(row.key, NO_SPEND))
        self.nodes[row.key] = _entry(summary, seq)

    def _write_tasks(self, names: Iterable[str], seq: int) -> None:
        for name in names:
            nodes = self._task_nodes.get(name, TaskNodes())
            faster = tuple(nodes.faster[number] for number in sorted(nodes.faster))
            task = msgspec.structs.replace(self._task_states[name], nodes=faster)
            summary = task_summary(task, len(nodes.numbers))
            self.best[name] = summary.best
            self.tasks[name] = _entry(summary, seq)

    # --- answers -----------------------------------------------------------------------------

    @property
    def usd(self) -> float | None:
        """What all calls have cost; None: at least one has no known price."""
        prices = [spend.usd for spend in self.spends.values()]
        return None if None in prices else sum(price or 0.0 for price in prices)


def after(entries: dict[Key, FeedEntry], seq: int) -> Iterator[msgspec.Raw]:
    """Yield the rows that changed after a number, as JSON."""
    return (entry.json for entry in entries.values() if entry.seq > seq)


def everything(entries: dict[Key, FeedEntry]) -> Iterator[msgspec.Raw]:
    """Yield all rows as JSON."""
    return (entry.json for entry in entries.values())


def _entry(row: Value, seq: int) -> FeedEntry:
    return FeedEntry(seq, msgspec.Raw(msgspec.json.encode(row)))


def _last_seq(run: sqlite3.Connection) -> int:
    (seq,) = run.execute("SELECT COALESCE(MAX(seq), 0) FROM change").fetchone()
    return int(seq)
