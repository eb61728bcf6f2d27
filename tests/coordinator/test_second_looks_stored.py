"""Confirmations in the store, and their effect on a resumed search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from actors.coordinator.search.attempt_stages import Attempt, Stage
from actors.coordinator.search.search import OfferWork
from actors.coordinator.storage.database import Database
from actors.coordinator.storage.decisions import DecisionStore
from actors.coordinator.storage.store import Store
from protocol.values import RENAMED_REFERENCE, Candidate, Outcome, Reference, Task, Verdict

TASK = Task(name="t", source="the reference")


def correct(low: float, **more: str) -> Verdict:
    return Verdict(
        verdict=Outcome.CORRECT,
        median_us=5.0,
        speedup=2.0,
        speedup_ci95=(low, 3.0),
        log=f"says {RENAMED_REFERENCE}",
        profile=more or None,
    )


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Three correct nodes; the second one is the renamed reference."""
    with closing(Database(tmp_path)) as database:
        store = Store(database)
        store.add_task(TASK, 3)
        store.set_reference("t", Reference(eager_us=10.0), 0.0)
        for number in (1, 2, 3):
            stage = Stage.EVALUATE
            store.save_attempt("t", Attempt(number=number, parent=0, repair=False, stage=stage))
            store.save_candidate("t", number, Candidate(source=f"source {number}"))
            more = {"labels": RENAMED_REFERENCE} if number == 2 else {}
            store.add_node("t", number, correct(1.5, **more), 5.0, 0.0)
        yield database


def test_a_node_is_confirmed_faster_only_by_a_confirmation_above_1(database: Database) -> None:
    """The search can tell three cases apart: not faster, not confirmable, confirmed."""
    store = Store(database)
    store.confirm_node("t", 1, correct(0.9), 5.0)
    store.confirm_node("t", 2, None, 5.0)
    store.confirm_node("t", 3, correct(1.9), 5.0)

    assert [False, False, True] == [row.is_confirmed_faster for row in store.nodes("t")]
    assert [1, 2, 1] == [row.confirmed for row in store.nodes("t")]


def test_a_label_is_read_from_the_profile_only(database: Database) -> None:
    """A candidate that writes the label's name into its log does not get the label."""
    found = [bool(r.verdict and r.verdict.is_renamed_reference) for r in Store(database).nodes("t")]

    assert [False, True, False] == found


def test_confirmations_are_counted_for_the_present_number_of_nodes(database: Database) -> None:
    """Confirmations with fewer nodes, and one under way, are not counted."""
    store, decisions = Store(database), DecisionStore(database)
    for number, recorded in ((1, 2), (2, 3), (3, 3)):
        attempt = Attempt(number=number, parent=0, repair=False, stage=Stage.CONFIRM)
        decisions.add("t", OfferWork(Stage.CONFIRM, attempt), recorded)
    for number in (1, 2):
        store.confirm_node("t", number, correct(1.9), 5.0)

    assert (1, 1, 0) == tuple(decisions.second_looks("t", recorded=n) for n in (3, 2, 1))


def test_a_task_with_more_budget_is_not_finished(database: Database) -> None:
    """A larger budget makes a finished task open again; the same budget changes nothing."""
    store = Store(database)
    store.end_task("t", "")
    store.add_task(TASK, 3)
    ((_, _, before),) = store.tasks()
    store.add_task(TASK, 5)
    ((_, budget, after),) = store.tasks()

    assert ("finished", "measured", 5) == (before, after, budget)
