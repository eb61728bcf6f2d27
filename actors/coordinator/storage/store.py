"""The store: a run's tasks, attempts and nodes, as typed reads and writes.

Leases, calls and workers are in `activity_store.py`.  Both write into the same transaction, so that
a node and the end of its lease are durable together or not at all.
"""

from __future__ import annotations

import json
import secrets

import msgspec

from actors.coordinator.search.attempt_stages import Attempt, Stage
from actors.coordinator.storage.database import Database
from protocol.run_views import reference_columns, verdict_columns
from protocol.values import (
    RENAMED_REFERENCE,
    AttemptView,
    Candidate,
    FailedCandidate,
    GiveUpScope,
    Outcome,
    Plan,
    Reference,
    Task,
    Value,
    Verdict,
)

_encode = msgspec.msgpack.encode
CONFIRMED, UNCONFIRMABLE = 1, 2  # results of a node's confirmation


def _decode(verdict: bytes) -> Verdict:
    return msgspec.msgpack.decode(verdict, type=Verdict)


class NodeRow(Value, frozen=True, kw_only=True):
    """The fields of a stored node that the search needs."""

    number: int
    parent: int
    score_us: float | None
    source: str
    confirmed: int = 0
    verdict: Verdict | None = None  # only where the search needs it: a task may have a million rows

    @property
    def is_confirmed_faster(self) -> bool:
        """Whether the node was confirmed to be faster than the reference."""
        return self.confirmed == CONFIRMED and self.verdict is not None and self.verdict.is_faster

    @property
    def gives_up_on(self) -> GiveUpScope:
        """What the node's agent gave up on."""
        return self.verdict.gives_up_on if self.verdict is not None else "attempt"


class Store:
    """The reads and writes of tasks, attempts and nodes."""

    def __init__(self, database: Database) -> None:
        self._db = database
        # Plans and candidates of attempts under way, and the references: read often.
        self._plans: dict[tuple[str, int], Plan] = {}
        self._candidates: dict[tuple[str, int], Candidate] = {}
        self._references: dict[str, Reference] = {}

    # --- the run -----------------------------------------------------------------------------

    def count_start(self, at: float) -> int:
        """Record the start of a coordinator; return how many have started."""
        self._db.write(
            "INSERT INTO run (id, run_id, status, epoch, created, started, seconds)"
            " VALUES (1, ?, 'running', 1, ?, ?, 0.0) ON CONFLICT DO UPDATE"
            " SET epoch = epoch + 1, started = excluded.started, status = 'running', reason = ''",
            (secrets.token_hex(8), at, at),
        )
        self._db.commit()
        epoch: int = self._db.value("SELECT epoch FROM run")
        return epoch

    def change_supervisor(self, supervisor: str) -> str:
        """Record the supervisor that serves the run; return the former one, "" before the first."""
        former = str(self._db.value("SELECT supervisor FROM run"))
        self._db.write("UPDATE run SET supervisor = ?", (supervisor,))
        return former

    def set_status(self, status: str, reason: str = "") -> None:
        self._db.write("UPDATE run SET status = ?, reason = ?", (status, reason))

    def add_seconds(self, seconds: float) -> None:
        self._db.write("UPDATE run SET seconds = seconds + ?", (seconds,))

    # --- tasks -------------------------------------------------------------------------------

    def add_task(self, task: Task, budget: int, *, is_named: bool = False) -> None:
        """Add a task that is new, or the other budget of one that is not.

        A person's budget for the task holds until the command that starts the run names one
        (`is_named`), or until the setting is another one than at the last start.
        """
        self._db.write(
            "INSERT INTO task (name, source, settings, budget, named_budget, status)"
            " VALUES (?, ?, ?, ?, ?, 'new') ON CONFLICT DO UPDATE SET"
            " status = CASE WHEN status = 'finished' AND excluded.budget > task.budget"
            " AND (? OR named_budget IS NOT excluded.budget) THEN 'measured' ELSE status END,"
            " budget = CASE WHEN ? OR named_budget IS NOT excluded.budget"
            " THEN excluded.budget ELSE budget END,"
            " named_budget = excluded.named_budget",
            (task.name, task.source, _encode(task), budget, budget, is_named, is_named),
        )

    def set_reference(self, task: str, reference: Reference, at: float) -> None:
        """Record the reference's figures and the root, which is a node like the others."""
        self._db.write(
            "UPDATE task SET reference = ?, status = 'measured' WHERE name = ?",
            (_encode(reference), task),
        )
        self._db.update("task", reference_columns(reference), "WHERE name = ?", (task,))
        root = Verdict(
            verdict=Outcome.CORRECT,
            median_us=reference.eager_us,
            reference_us=reference.eager_us,
            speedup=1.0,
            device=reference.device.fingerprint,
        )
        self._db.write(
            "INSERT INTO node (task, number, source, advice, word, verdict, score_us, outside, at)"
            " SELECT name, 0, source, '', 'correct', ?, ?, '[]', ? FROM task WHERE name = ?",
            (_encode(root), reference.eager_us, at, task),
        )
        self._write_figures(task, 0, root)

    def set_baselines(self, task: str, reference: Reference) -> None:
        """Record the reference with the baselines that were measured after it."""
        self._references.pop(task, None)
        self._db.write("UPDATE task SET reference = ? WHERE name = ?", (_encode(reference), task))
        self._db.update("task", reference_columns(reference), "WHERE name = ?", (task,))

    def end_task(self, task: str, problem: str) -> None:
        status = "refused" if problem else "finished"
        self._db.write(
            "UPDATE task SET status = ?, problem = ? WHERE name = ?", (status, problem, task)
        )

    def refused_tasks(self) -> list[str]:
        """Return why tasks were refused, "NAME: why"."""
        rows = self._db.rows("SELECT name, problem FROM task WHERE problem != '' ORDER BY rowid")
        return [f"{name}: {problem}" for name, problem in rows]

    def reference(self, task: str) -> Reference | None:
        """Return the measured reference, once there is one."""
        known = self._references.get(task)
        if known is None:
            row = self._db.row("SELECT reference FROM task WHERE name = ?", (task,))
            if not row or not row[0]:
                return None
            known = self._references[task] = msgspec.msgpack.decode(row[0], type=Reference)
        return known

    def tasks(self) -> list[tuple[Task, int, str]]:
        """Return (task, budget, status) in the order in which they were named."""
        rows = self._db.rows("SELECT settings, budget, status FROM task ORDER BY rowid")
        return [(msgspec.msgpack.decode(row[0], type=Task), row[1], row[2]) for row in rows]

    # --- attempts and nodes ------------------------------------------------------------------

    def save_attempt(self, task: str, attempt: Attempt) -> None:
        """Record that an attempt has reached a stage; a repair inherits its parent's plan."""
        self._db.write(
            "INSERT INTO attempt (task, number, parent, kind, state) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET state = excluded.state",
            (
                task,
                attempt.number,
                attempt.parent,
                "inject" if attempt.injected else "repair" if attempt.repair else "improve",
                attempt.stage,
            ),
        )
        if attempt.stage is Stage.REPAIR:
            self._db.write(
                "UPDATE attempt SET (plan, advice) ="
                " (SELECT plan, advice FROM node WHERE task = ? AND number = ?)"
                " WHERE task = ? AND number = ?",
                (task, attempt.parent, task, attempt.number),
            )

    def save_plan(self, task: str, number: int, plan: Plan) -> None:
        self._plans[task, number] = plan
        self._db.write(
            "UPDATE attempt SET plan = ?, advice = ? WHERE task = ? AND number = ?",
            (_encode(plan), plan.advice, task, number),
        )

    def save_candidate(self, task: str, number: int, candidate: Candidate) -> None:
        self._candidates[task, number] = candidate
        self._db.write(
            "UPDATE attempt SET candidate = ? WHERE task = ? AND number = ?",
            (_encode(candidate), task, number),
        )

    def save_failed_candidate(self, task: str, number: int, failed: FailedCandidate) -> None:
        """Record the candidate that an attempt's agent is asked to mend."""
        self._db.write(
            "UPDATE attempt SET failed = ? WHERE task = ? AND number = ?",
            (_encode(failed), task, number),
        )

    def failed_candidate(self, task: str, number: int) -> FailedCandidate | None:
        """Return the candidate that an attempt's agent was asked to mend; None: there was none."""
        row = self._db.row(
            "SELECT failed FROM attempt WHERE task = ? AND number = ?", (task, number)
        )
        return msgspec.msgpack.decode(row[0], type=FailedCandidate) if row and row[0] else None

    def plan(self, task: str, number: int) -> Plan | None:
        """Return an attempt's plan, once there is one."""
        known = self._plans.get((task, number))
        if known is not None:
            return known
        row = self._db.row("SELECT plan FROM attempt WHERE task = ? AND number = ?", (task, number))
        return msgspec.msgpack.decode(row[0], type=Plan) if row and row[0] else None

    def candidate(self, task: str, number: int) -> Candidate | None:
        """Return an attempt's candidate, once there is one."""
        known = self._candidates.get((task, number))
        if known is not None:
            return known
        row = self._db.row(
            "SELECT candidate FROM attempt WHERE task = ? AND number = ?", (task, number)
        )
        return msgspec.msgpack.decode(row[0], type=Candidate) if row and row[0] else None

    def add_node(
        self, task: str, number: int, verdict: Verdict, score_us: float | None, at: float
    ) -> None:
        """Record an attempt's end; a second one for the same attempt is a bug and raises."""
        candidate = self.candidate(task, number)
        plan = self.plan(task, number)
        self._db.write(
            "INSERT INTO node (task, number, parent, source, advice, word, verdict, score_us,"
            " plan, outside, at, pruned) SELECT ?, ?, a.parent, ?, ?, ?, ?, ?, a.plan, ?, ?,"
            " COALESCE(above.pruned, 0) FROM attempt AS a LEFT JOIN node AS above"
            " ON above.task = a.task AND above.number = a.parent"
            " WHERE a.task = ? AND a.number = ?",
            (
                task,
                number,
                candidate.source if candidate else "",
                plan.advice if plan else "",
                verdict.verdict,
                _encode(verdict),
                score_us,
                json.dumps(candidate.outside if candidate else ()),
                at,
                task,
                number,
            ),
        )
        self._write_figures(task, number, verdict)
        self._db.write(
            "UPDATE attempt SET state = 'done' WHERE task = ? AND number = ?", (task, number)
        )
        self._plans.pop((task, number), None)
        self._candidates.pop((task, number), None)

    def confirm_node(
        self, task: str, number: int, verdict: Verdict | None, score_us: float | None
    ) -> None:
        """Replace a node's verdict by its confirmation; None: the first verdict stays."""
        if verdict is not None:
            verdict = self._with_first_look(task, number, verdict)
            self._db.write(
                "UPDATE node SET word = ?, verdict = ?, score_us = ? WHERE task = ? AND number = ?",
                (verdict.verdict, _encode(verdict), score_us, task, number),
            )
            self._write_figures(task, number, verdict)
        self._db.write(
            "UPDATE node SET confirmed = ? WHERE task = ? AND number = ?",
            (UNCONFIRMABLE if verdict is None else CONFIRMED, task, number),
        )

    def _with_first_look(self, task: str, number: int, verdict: Verdict) -> Verdict:
        """Return a confirmation with what only the first look has: the race, the mended failure."""
        query = "SELECT verdict FROM node WHERE task = ? AND number = ?"
        row = self._db.row(query, (task, number))
        first = msgspec.msgpack.decode(row[0], type=Verdict) if row else verdict
        return msgspec.structs.replace(
            verdict, variants=first.variants, variant=first.variant, amended=first.amended
        )

    def _write_figures(self, task: str, number: int, verdict: Verdict) -> None:
        """Write a verdict's figures into the columns that people and views read."""
        columns = verdict_columns(verdict)
        self._db.update("node", columns, "WHERE task = ? AND number = ?", (task, number))

    def nodes(self, task: str) -> list[NodeRow]:
        """Return every node but the root, in the order in which they were recorded."""
        rows = self._db.rows(
            "SELECT number, parent, score_us, source, confirmed,"
            " CASE WHEN confirmed > 0 OR word = ? OR instr(verdict, CAST(? AS BLOB))"
            " THEN verdict END FROM node WHERE task = ? AND number > 0 ORDER BY id",
            (Outcome.NO_CANDIDATE, RENAMED_REFERENCE, task),
        )
        return [
            NodeRow(
                number=number,
                parent=parent,
                score_us=score,
                source=source,
                confirmed=again,
                verdict=_decode(blob) if blob else None,
            )
            for number, parent, score, source, again, blob in rows
        ]

    def sources(self, task: str, after: int) -> list[tuple[int, str]]:
        """Return (id, source) of the nodes with code that were recorded after the one of id."""
        return self._db.rows(
            "SELECT id, source FROM node WHERE task = ? AND number > 0 AND id > ?"
            " AND source != '' ORDER BY id",
            (task, after),
        )

    def recorded_scores(self, task: str, after: int) -> list[tuple[int, int, float | None]]:
        """Return (id, number, score) of the nodes that were recorded after the one of id."""
        return self._db.rows(
            "SELECT id, number, score_us FROM node WHERE task = ? AND number > 0 AND id > ?"
            " ORDER BY id",
            (task, after),
        )

    def advice(self, task: str, number: int) -> str:
        """Return the advice of an attempt's plan; "" while there is none."""
        row = self._db.row(
            "SELECT advice FROM attempt WHERE task = ? AND number = ?", (task, number)
        )
        return str(row[0]) if row else ""

    def attempt_count(self, task: str) -> int:
        """Return the number of attempts that a task has begun."""
        count: int = self._db.value("SELECT COUNT(*) FROM attempt WHERE task = ?", (task,))
        return count

    def attempts_under_way(self, task: str) -> list[Attempt]:
        rows = self._db.rows(
            "SELECT number, parent, kind, state FROM attempt WHERE task = ? AND state != 'done'"
            " ORDER BY number",
            (task,),
        )
        return [
            Attempt(
                number=number,
                parent=parent,
                repair=kind == "repair",
                stage=Stage(state),
                injected=kind == "inject",
            )
            for number, parent, kind, state in rows
        ]

    def parents(self, task: str, number: int) -> list[int]:
        """Return a node and all nodes above it, from the node upwards."""
        rows = self._db.rows(
            "WITH RECURSIVE up (number, parent, depth) AS (SELECT number, parent, 0 FROM node"
            " WHERE task = ? AND number = ? UNION SELECT node.number, node.parent, depth + 1"
            " FROM node JOIN up ON node.number = up.parent WHERE node.task = ?)"
            " SELECT number FROM up ORDER BY depth",
            (task, number, task),
        )
        return [found for (found,) in rows]

    def attempt_view(self, task: str, number: int) -> AttemptView:
        """Return a recorded node as an agent sees it."""
        ((parent, advice, source, verdict, score_us),) = self._db.rows(
            "SELECT parent, advice, source, verdict, score_us FROM node"
            " WHERE task = ? AND number = ?",
            (task, number),
        )
        return AttemptView(
            node=number,
            parent=parent,
            advice=advice,
            source=source,
            # Agents are not shown the timed groups: a window has seven verdicts.
            verdict=msgspec.structs.replace(_decode(verdict), groups=None),
            score_us=score_us,
        )
