"""Decisions: what the search decided, in its order, and what it went by.

Kept so that a coordinator that begins again offers what was offered before, windows included (a
reply that was bought for it still answers it), and so that `scripts/replay.py` can hold a run
against the search.
"""

from __future__ import annotations

import msgspec

from actors.coordinator.search.search import OfferWork
from actors.coordinator.search.stages import Attempt, Stage
from actors.coordinator.search.tree import FAILED_SCORE
from actors.coordinator.storage.database import Database
from protocol.values import Value, Verdict


class Decision(Value, frozen=True, kw_only=True):
    """One offer, as it was made."""

    order: int
    number: int  # of the attempt
    stage: Stage
    parent: int
    window: tuple[int, ...]
    seed: int
    recorded: int  # nodes that the search knew by then, the root left out


class UnconfirmedVerdict(Value, frozen=True, kw_only=True):
    """What a node came to before it was judged again."""

    number: int
    verdict: Verdict
    score: float


class DecisionStore:
    """The tables `decision` and `first_look`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, task: str, offer: OfferWork, recorded: int) -> None:
        """Record an offer; the same one made again by a later coordinator is recorded once."""
        if offer.stage is Stage.MEASURE:
            return  # where every search begins
        self._db.write(
            'INSERT OR IGNORE INTO decision (task, number, stage, parent, "window", seed, recorded)'
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                task,
                offer.attempt.number,
                offer.stage,
                offer.attempt.parent,
                msgspec.json.encode(offer.window).decode(),
                offer.seed,
                recorded,
            ),
        )

    def decisions_of(self, task: str) -> list[Decision]:
        """Return a task's decisions in their order."""
        rows = self._db.rows(
            'SELECT id, number, stage, parent, "window", seed, recorded FROM decision'
            " WHERE task = ? ORDER BY id",
            (task,),
        )
        return [_decision(*row) for row in rows]

    def decision_for(self, task: str, attempt: Attempt) -> OfferWork | None:
        """Return what was offered of an attempt's present stage; None in runs of older versions."""
        row = self._db.row(
            'SELECT id, number, stage, parent, "window", seed, recorded FROM decision'
            " WHERE task = ? AND number = ? AND stage = ?",
            (task, attempt.number, attempt.stage),
        )
        if row is None:
            return None
        made = _decision(*row)
        return OfferWork(attempt.stage, attempt, made.window, made.seed)

    def second_looks(self, task: str, recorded: int) -> int:
        """Return how many nodes were judged again since there were so many; one may be under way.

        0 in runs of older versions.
        """
        count: int = self._db.value(
            "SELECT COUNT(*) FROM decision JOIN node USING (task, number)"
            " WHERE task = ? AND stage = ? AND recorded = ? AND confirmed > 0",
            (task, Stage.CONFIRM, recorded),
        )
        return count

    def keep_unconfirmed_verdict(self, task: str, number: int) -> None:
        """Keep a node's verdict and score, before a second look takes their place."""
        self._db.write(
            "INSERT OR IGNORE INTO first_look (task, number, verdict, score_us)"
            " SELECT task, number, verdict, score_us FROM node WHERE task = ? AND number = ?",
            (task, number),
        )

    def unconfirmed_verdicts(self, task: str) -> dict[int, UnconfirmedVerdict]:
        """Return what the nodes that were judged again came to before, by number."""
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
