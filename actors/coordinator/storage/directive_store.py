"""The tables `directive` and `rejection`: what a person asked of the run, and its effects on nodes.

A row of `directive` is written in the transaction of its effects.  It also says where it stands
among the decisions of its task, so that a restarted coordinator and a replay apply it at the same
place.  Runs of older versions have none of these tables, which reads as a run without directives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec.structs import replace

from actors.coordinator.search.steering_events import NodeSteered, NodeVerb, SourceInjected
from actors.coordinator.search.tree import FAILED_SCORE
from actors.coordinator.storage.database import Database
from actors.coordinator.storage.store import NodeRow
from protocol.directives import NODE_VERBS, REJECTED_BY_PERSON, Directive, DirectiveArguments
from protocol.run_views import verdict_columns
from protocol.values import Outcome, Value, Verdict

NO_DECISION = 2**62
APPLIED, REFUSED = "applied", "refused"
COLUMNS = (
    *("id", "key", "verb", "task", "node", "arguments", "by", "wanted_at", "state", "reason"),
    *("applied_at", "attempt", "decided", "recorded", "begun", "confirmed"),
)


class DirectivePlace(Value, frozen=True, kw_only=True):
    """Where a directive stands among the decisions and results of its task."""

    decided: int = 0
    recorded: int = 0
    begun: int = 0
    confirmed: int = 0


class DirectiveRow(Value, frozen=True, kw_only=True):
    """One directive that was applied or refused."""

    id: int
    key: str
    verb: str
    task: str
    node: int | None
    arguments: DirectiveArguments
    by: str
    state: str
    reason: str
    attempt: int | None
    place: DirectivePlace

    def search_event(self) -> NodeSteered | SourceInjected | None:
        """Return the event that the task's search took in; None for a verb that it does not see."""
        if self.state != APPLIED or self.node is None:
            return None
        if self.verb == "inject" and self.attempt is not None:
            return SourceInjected(number=self.attempt, parent=self.node)
        if self.verb not in NODE_VERBS:
            return None
        return NodeSteered(
            verb=cast("NodeVerb", self.verb),
            number=self.node,
            count=self.arguments.count or 1,
            begun=self.place.begun,
        )


class Rejection(Value, frozen=True, kw_only=True):
    """What the judge had said of a node when a person rejected it."""

    number: int
    verdict: Verdict
    score_us: float | None
    decided: int

    @property
    def score(self) -> float:
        """The node's score before."""
        return FAILED_SCORE if self.score_us is None else self.score_us


class DirectiveStore:
    """The reads and writes of directives, and of what they change at nodes and the run."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._exists = database.has_table("directive")
        self._rows: list[DirectiveRow] | None = None  # the applied ones; the store is their writer
        self._rejections: dict[str, dict[int, Rejection]] = {}

    # --- directives --------------------------------------------------------------------------

    def has(self, key: str) -> bool:
        """Whether a directive of this key was applied or refused."""
        return self._db.row("SELECT 1 FROM directive WHERE key = ?", (key,)) is not None

    def add(
        self,
        directive: Directive,
        *,
        reason: str,
        at: float,
        place: DirectivePlace,
        attempt: int | None = None,
    ) -> None:
        """Record a directive; `reason`: why it was refused, "" for one that was applied.

        Source and reply are not repeated here: the attempt has the one, table `call` the other.
        """
        is_long = directive.verb == "answer"
        arguments = replace(
            directive.arguments, source="", text="" if is_long else directive.arguments.text
        )
        self._db.insert(
            "directive",
            key=directive.key,
            verb=directive.verb,
            task=directive.task,
            node=directive.node,
            arguments=msgspec.json.encode(arguments).decode(),
            by=directive.by,
            wanted_at=directive.at,
            state=REFUSED if reason else APPLIED,
            reason=reason,
            applied_at=at,
            attempt=attempt,
            **msgspec.structs.asdict(place),
        )
        self._rows = None

    def add_unreadable(self, key: str, reason: str, at: float) -> None:
        """Record a file of the spool that is not a directive."""
        self._db.insert(
            "directive",
            key=key,
            verb="unreadable",
            task="",
            arguments="{}",
            by="",
            wanted_at=at,
            state=REFUSED,
            reason=reason,
            applied_at=at,
        )

    def applied(self, task: str) -> list[DirectiveRow]:
        """Return the applied directives that concern a task or the whole run, in order."""
        if not self._exists:
            return []
        if self._rows is None:
            condition = "WHERE state = ? ORDER BY id"
            rows = self._db.select("directive", COLUMNS, condition, (APPLIED,))
            self._rows = [_directive_row(*row) for row in rows]
        return [row for row in self._rows if row.task in ("", task)]

    def search_events(self, task: str) -> list[NodeSteered | SourceInjected]:
        """Return what the search of a task took in, in order."""
        events = (row.search_event() for row in self.applied(task) if row.task == task)
        return [event for event in events if event is not None]

    def advice(self, task: str, path: Sequence[int], order: int) -> tuple[str, ...]:
        """Return a person's advice for an attempt: what concerns the run first, its node last.

        `path`: the node that grows and all nodes above it.  `order`: the attempt's decision; later
        advice is for later attempts.  A later text for the same place replaces an earlier one, and
        an empty text takes it back.
        """
        texts: dict[tuple[str, int | None, bool], str] = {}
        for row in self.applied(task):
            if row.verb != "advise" or row.place.decided >= order:
                continue
            is_below = row.node in path and row.arguments.scope != "node"
            if row.node is None or row.node == path[0] or is_below:
                place = (row.task, row.node, row.arguments.scope == "node")
                texts.pop(place, None)
                texts[place] = row.arguments.text
        height = {number: len(path) - depth for depth, number in enumerate(path)}
        places = sorted(texts, key=lambda one: (one[0] != "", height.get(one[1] or -1, 0), one[2]))
        return tuple(texts[place] for place in places if texts[place])

    def order_of(self, task: str, number: int, stage: str) -> int:
        """Return the id of an attempt's decision; a very large one for a run that lacks it."""
        row = self._db.row(
            "SELECT id FROM decision WHERE task = ? AND number = ? AND stage = ?",
            (task, number, stage),
        )
        return int(row[0]) if row else NO_DECISION

    def last_decision(self) -> int:
        """Return the largest id of a decision; 0 before the first."""
        order: int = self._db.value("SELECT COALESCE(MAX(id), 0) FROM decision")
        return order

    # --- nodes -------------------------------------------------------------------------------

    def set_pinned(self, task: str, number: int, *, pinned: bool) -> None:
        self._db.write(
            "UPDATE node SET pinned = ? WHERE task = ? AND number = ?", (pinned, task, number)
        )

    def change_prunes(self, task: str, top: int, by: int) -> None:
        """Add `by` to the prunes of a node and of all nodes below it."""
        self._db.write(
            "WITH RECURSIVE below (number) AS (VALUES (?) UNION SELECT node.number FROM node"
            " JOIN below ON node.parent = below.number WHERE node.task = ?)"
            " UPDATE node SET pruned = pruned + ? WHERE task = ? AND number IN below",
            (top, task, by, task),
        )

    def reject(self, task: str, number: int, reason: str, decided: int) -> None:
        """Replace a node's verdict by a person's, and keep the judge's in `rejection`."""
        ((blob, score_us),) = self._db.rows(
            "SELECT verdict, score_us FROM node WHERE task = ? AND number = ?", (task, number)
        )
        before = msgspec.msgpack.decode(blob, type=Verdict)
        self._db.insert(
            "rejection", task=task, number=number, verdict=blob, score_us=score_us, decided=decided
        )
        after = replace(
            before,
            verdict=Outcome.REJECTED,
            reason=f"{REJECTED_BY_PERSON}{reason}",
            speedup=None,
            speedup_ci95=None,
            release=None,
        )
        blob = msgspec.msgpack.encode(after)
        columns = {"word": after.verdict, "verdict": blob, "score_us": None}
        self._db.update(
            "node",
            {**columns, **verdict_columns(after)},
            "WHERE task = ? AND number = ?",
            (task, number),
        )
        self._rejections.pop(task, None)

    def rejections(self, task: str) -> dict[int, Rejection]:
        """Return what was said of the nodes that a person rejected, by number."""
        if not self._exists:
            return {}
        known = self._rejections.get(task)
        if known is None:
            rows = self._db.rows(
                "SELECT number, verdict, score_us, decided FROM rejection WHERE task = ?", (task,)
            )
            known = self._rejections[task] = {
                number: Rejection(
                    number=number,
                    verdict=msgspec.msgpack.decode(verdict, type=Verdict),
                    score_us=score_us,
                    decided=decided,
                )
                for number, verdict, score_us, decided in rows
            }
        return known

    def before_rejection(self, task: str, rows: list[NodeRow]) -> list[NodeRow]:
        """Return nodes as the search took them in: with the judge's verdict, not a person's."""
        rejections = self.rejections(task)
        return [
            replace(row, verdict=before.verdict, score_us=before.score_us)
            if (before := rejections.get(row.number))
            else row
            for row in rows
        ]

    # --- the run -----------------------------------------------------------------------------

    def set_paused(self, *, paused: bool) -> None:
        self._db.write("UPDATE run SET paused = ?", (paused,))

    def set_finishing(self, *, finishing: bool) -> None:
        self._db.write("UPDATE run SET finishing = ?", (finishing,))

    def is_paused(self) -> bool:
        return bool(self._db.value("SELECT paused FROM run"))

    def is_finishing(self) -> bool:
        return bool(self._db.value("SELECT finishing FROM run"))

    def set_cap(self, usd: float | None) -> None:
        self._db.write("UPDATE run SET cap_usd = ?", (usd,))

    def cap_at_start(self, max_cost: float | None, *, is_named: bool) -> float | None:
        """Return the cap in force, and record it: the later of --max-cost and a person's cap.

        `is_named`: the command that starts the run names --max-cost, so it is the later one.
        """
        before, cap = self._db.rows("SELECT max_cost, cap_usd FROM run")[0]
        if is_named or before != max_cost:
            cap = max_cost
        self._db.write("UPDATE run SET max_cost = ?, cap_usd = ?", (max_cost, cap))
        return None if cap is None else float(cap)

    def set_budget(self, task: str, budget: int) -> None:
        self._db.write("UPDATE task SET budget = ? WHERE name = ?", (budget, task))

    def reopen_task(self, task: str) -> None:
        """Record that a finished task goes on."""
        self._db.write(
            "UPDATE task SET status = 'measured' WHERE name = ? AND status = 'finished'", (task,)
        )


def _directive_row(
    row: int,
    key: str,
    verb: str,
    task: str,
    node: int | None,
    arguments: str,
    by: str,
    wanted_at: float,
    state: str,
    reason: str,
    applied_at: float,
    attempt: int | None,
    decided: int,
    recorded: int,
    begun: int,
    confirmed: int,
) -> DirectiveRow:
    return DirectiveRow(
        id=row,
        key=key,
        verb=verb,
        task=task,
        node=node,
        arguments=msgspec.json.decode(arguments, type=DirectiveArguments),
        by=by,
        state=state,
        reason=reason,
        attempt=attempt,
        place=DirectivePlace(decided=decided, recorded=recorded, begun=begun, confirmed=confirmed),
    )
