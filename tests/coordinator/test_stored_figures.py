"""The figures in columns, as the coordinator's store writes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from actors.coordinator.search.attempt_stages import Attempt, Stage
from actors.coordinator.search.search import OfferWork
from actors.coordinator.storage.database import Database
from actors.coordinator.storage.decisions import DecisionStore
from actors.coordinator.storage.store import Store
from protocol.run_views import VERDICT_COLUMNS, verdict_columns
from protocol.values import (
    Candidate,
    Device,
    Outcome,
    Plan,
    Reference,
    Task,
    VariantResult,
    Verdict,
)

COLUMNS = ", ".join(VERDICT_COLUMNS)
ATTEMPT = Attempt(number=1, parent=0, repair=False, stage=Stage.PLAN)
PLAN = Plan(advice="Fuse both\nlines.", scaffold="")
FIRST = Verdict(verdict=Outcome.CORRECT, speedup=2.0, speedup_ci95=(1.5, 2.5), median_us=20.0)
CONFIRMED = Verdict(verdict=Outcome.CORRECT, speedup=1.2, speedup_ci95=(1.1, 1.3), median_us=33.0)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A measured task with one attempt that is judged."""
    made = Database(tmp_path)
    store = Store(made)
    store.count_start(1.0)
    store.add_task(Task(name="t", source=""), 5)
    device = Device(name="a CPU")
    store.set_reference("t", Reference(eager_us=40.0, compile_us=30.0, device=device), 2.0)
    store.save_attempt("t", ATTEMPT)
    store.save_plan("t", 1, PLAN)
    store.save_candidate("t", 1, Candidate(source="x"))
    store.add_node("t", 1, FIRST, 20.0, 3.0)
    yield made
    made.close()


def figures(database: Database, table: str, number: int) -> tuple[object, ...] | None:
    return database.row(
        f"SELECT {COLUMNS} FROM {table} WHERE number = ?",  # noqa: S608
        (number,),
    )


def expected(verdict: Verdict) -> tuple[object, ...]:
    return tuple(verdict_columns(verdict).values())


def test_a_node_has_its_verdicts_figures(database: Database) -> None:
    """A person sees in columns what the verdict says, of the reference, too."""
    assert expected(FIRST) == figures(database, "node", 1)
    assert 1.0 == database.value("SELECT speedup FROM node WHERE number = 0")
    task = "SELECT eager_us, compile_us, max_autotune_us, device_name FROM task"
    assert (40.0, 30.0, None, "a CPU") == database.row(task)


def test_a_confirmation_replaces_the_figures_and_keeps_the_first(database: Database) -> None:
    """The columns of node and first look say what their verdicts say."""
    DecisionStore(database).keep_unconfirmed_verdict("t", 1)
    Store(database).confirm_node("t", 1, CONFIRMED, 33.0)
    assert expected(CONFIRMED) == figures(database, "node", 1)
    assert expected(FIRST) == figures(database, "first_look", 1)
    assert "correct" == database.value("SELECT word FROM first_look")


def test_a_confirmation_keeps_the_race_of_the_variants(database: Database) -> None:
    """What each variant gave is known after the best one was judged again, alone."""
    raced = (VariantResult(values={"THREADS": "128"}), VariantResult(values={"THREADS": "256"}))
    store = Store(database)
    store.save_attempt("t", dataclasses.replace(ATTEMPT, number=2))
    store.save_candidate("t", 2, Candidate(source="y"))
    first = msgspec.structs.replace(FIRST, variants=raced, variant=1)
    store.add_node("t", 2, first, 20.0, 3.0)
    store.confirm_node("t", 2, CONFIRMED, 33.0)
    stored = next(node.verdict for node in store.nodes("t") if node.number == 2)
    assert msgspec.structs.replace(CONFIRMED, variants=raced, variant=1) == stored


def test_a_repair_inherits_the_idea(database: Database) -> None:
    """While a repair is under way, its row names the plan that it repairs."""
    store = Store(database)
    store.save_attempt("t", Attempt(number=2, parent=1, repair=True, stage=Stage.REPAIR))
    assert [("Fuse both lines.",)] == database.rows("SELECT idea FROM attempts WHERE number = 2")


def test_a_restarted_coordinator_counts_confirmations(database: Database) -> None:
    """It goes on with the confirmations: columns of node and decision have different names."""
    decisions = DecisionStore(database)
    confirm = Attempt(number=1, parent=0, repair=False, stage=Stage.CONFIRM)
    decisions.add("t", OfferWork(Stage.CONFIRM, confirm, (), 0), 1)
    assert 0 == decisions.second_looks("t", 1)
    Store(database).confirm_node("t", 1, CONFIRMED, 33.0)
    assert 1 == decisions.second_looks("t", 1)
