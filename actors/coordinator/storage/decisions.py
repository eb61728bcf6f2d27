"""The decisions of the searches, in their order, and the verdicts that they were based on.

A restarted coordinator makes the same offers again, windows included, so that a stored reply still
answers its request.  `scripts/replay.py` compares the decisions of a run with the search.
"""

from __future__ import annotations

import msgspec

from actors.coordinator.search.attempt_stages import Attempt, Stage
from actors.coordinator.search.search import OfferWork
from actors.coordinator.search.tree import FAILED_SCORE
from actors.coordinator.storage.database import Database
from protocol.run_views import VERDICT_COLUMNS, verdict_columns
from protocol.values import Value, Verdict

DECISION_COLUMNS = ("id", "number", "stage", "parent", "window", "seed", "recorded")


class Decision(Value, frozen=True, kw_only=True):
    """One recorded offer."""

    order: int
    number: int  # of the attempt
    stage: Stage
    parent: int
    window: tuple[int, ...]
    seed: int
    recorded: int  # nodes in the tree at that time, without the root


class UnconfirmedVerdict(Value, frozen=True, kw_only=True):
    """The first verdict and score of a node that was confirmed later."""

    number: int
    verdict: Verdict
    score: float


class DecisionStore:
    """The tables `decision` and `first_look`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, task: str, offer: OfferWork, recorded: int) -> None:
        """Record an offer once, also when a later coordinator makes it again."""
        if offer.stage is Stage.MEASURE:
            return  # every search begins with this offer
        self._db.insert(
            "decision",
            skip_duplicate=True,
            task=task,
            number=offer.attempt.number,
            stage=offer.stage,
            parent=offer.attempt.parent,
            window=msgspec.json.encode(offer.window).decode(),
            seed=offer.seed,
            recorded=recorded,
        )

    def decisions_of(self, task: str) -> list[Decision]:
        """Return a task's decisions in their order."""
        rows = self._db.select("decision", DECISION_COLUMNS, "WHERE task = ? ORDER BY id", (task,))
        return [_decision(*row) for row in rows]

    def decision_for(self, task: str, attempt: Attempt) -> OfferWork | None:
        """Return the stored offer of an attempt's present stage; None in runs of older versions."""
        decision = self.place_of(task, attempt.number, attempt.stage)
        if decision is None:
            return None
        return OfferWork(attempt.stage, attempt, decision.window, decision.seed)

    def place_of(self, task: str, number: int, stage: Stage) -> Decision | None:
        """Return the decision about one stage of an attempt; None in runs of older versions."""
        where = "WHERE task = ? AND number = ? AND stage = ?"
        rows = self._db.select("decision", DECISION_COLUMNS, where, (task, number, stage))
        return _decision(*rows[0]) if rows else None

    def begun_before(self, task: str, order: int) -> int:
        """Return the largest number of an attempt with a decision before that order."""
        row = self._db.row(
            "SELECT number FROM decision WHERE task = ? AND id < ? ORDER BY number DESC LIMIT 1",
            (task, order),
        )
        return int(row[0]) if row else 0

    def stages_before(self, task: str, number: int, order: int) -> list[Decision]:
        """Return an attempt's decisions before that order, in their order."""
        where = "WHERE task = ? AND number = ? AND id < ? ORDER BY id"
        rows = self._db.select("decision", DECISION_COLUMNS, where, (task, number, order))
        return [_decision(*row) for row in rows]

    def second_looks(self, task: str, recorded: int) -> int:
        """Return the number of confirmations since the tree had `recorded` nodes.

        A confirmation under way does not count.  0 in runs of older versions.
        """
        count: int = self._db.value(
            "SELECT COUNT(*) FROM decision JOIN node USING (task, number)"
            " WHERE task = ? AND decision.stage = ? AND recorded = ? AND confirmed > 0",
            (task, Stage.CONFIRM, recorded),
        )
        return count

    def keep_unconfirmed_verdict(self, task: str, number: int) -> None:
        """Copy the judge's verdict and score of a node before a confirmation replaces them."""
        node = (task, number)
        where = "WHERE task = ? AND number = ?"
        if self._db.rows(f"SELECT 1 FROM first_look {where}", node):  # noqa: S608  # our own text
            return
        columns = ", ".join(("task", "number", "verdict", "score_us", "word", *VERDICT_COLUMNS))
        self._db.write(
            f"INSERT INTO first_look ({columns}) SELECT {columns} FROM node {where}",  # noqa: S608
            node,
        )
        # Of a node that a person rejected meanwhile, the judge's verdict is kept apart.
        query = f"SELECT verdict, score_us FROM rejection {where}"  # noqa: S608
        for blob, score_us in self._db.rows(query, node):
            verdict = msgspec.msgpack.decode(blob, type=Verdict)
            figures = {"verdict": blob, "score_us": score_us, "word": verdict.verdict}
            self._db.update("first_look", {**figures, **verdict_columns(verdict)}, where, node)

    def unconfirmed_verdicts(self, task: str) -> dict[int, UnconfirmedVerdict]:
        """Return the first verdicts of the confirmed nodes, by number."""
        rows = self._db.rows(
            "SELECT number, verdict, score_us FROM first_look WHERE task = ?", (task,)
        )
        return {
            number: UnconfirmedVerdict(
                number=number,
                verdict=msgspec.msgpack.decode(verdict, type=Verdict),
                score=FAILED_SCORE if score_us is None else score_us,
            )
            for number, verdict, score_us in rows
        }


def _decision(
    order: int, number: int, stage: str, parent: int, window: str, seed: int, recorded: int
) -> Decision:
    return Decision(
        order=order,
        number=number,
        stage=Stage(stage),
        parent=parent,
        window=msgspec.json.decode(window, type=tuple[int, ...]),
        seed=seed,
        recorded=recorded,
    )
