"""The messages for agents, from a store: what a node without code of its own stands for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from actors.coordinator.gateway.work_messages import WorkMessages, work_id
from actors.coordinator.search.search import OfferWork
from actors.coordinator.search.stages import Attempt, Stage
from actors.coordinator.storage.activity_store import ActivityStore
from actors.coordinator.storage.database import Database
from actors.coordinator.storage.store import Store
from protocol.messages import Lease, MakePlan, Reflect, Repair, Solve, Work
from protocol.values import Candidate, Outcome, Plan, Reference, Task, Verdict, source_key

TASK = Task(name="t", source="the reference")
GONE = Verdict(verdict=Outcome.NO_CANDIDATE, reason="the model refused to answer")
FINE = Verdict(verdict=Outcome.CORRECT, median_us=5.0, speedup=2.0)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """0 - 1 (correct) - 2 (no candidate) - 3 (none either), and 4 below 1, a plan without code."""
    with closing(Database(tmp_path)) as database:
        made = Store(database)
        made.add_task(TASK, 9)
        made.set_reference("t", Reference(eager_us=10.0), 0.0)
        for number, parent in ((1, 0), (2, 1), (3, 2), (4, 1)):
            attempt = Attempt(number=number, parent=parent, repair=False, stage=Stage.SOLVE)
            made.save_attempt("t", attempt)
            if number == 1:
                made.save_candidate("t", 1, Candidate(source="twice as fast"))
            if number == 4:
                made.save_plan("t", 4, Plan(advice="Fuse.", scaffold="# marked\ntwice as fast"))
            made.add_node("t", number, FINE if number == 1 else GONE, None, 0.0)
        yield database


def told(database: Database, stage: Stage, parent: int) -> Work:
    """Return what the agent of attempt 5, which grows `parent`, is told."""
    attempt = Attempt(number=5, parent=parent, repair=stage is Stage.REPAIR, stage=stage)
    store = Store(database)
    store.save_attempt("t", attempt)
    work_messages = WorkMessages(store, ActivityStore(database), {"t": TASK})
    lease = Lease(work=work_id("t", 5, stage), epoch=1)
    return work_messages.message_for(lease, OfferWork(stage, attempt, (parent, 0)))


@pytest.mark.parametrize("stage", [Stage.SOLVE, Stage.REFLECT])
def test_a_chain_goes_on_from_its_last_code(database: Database, stage: Stage) -> None:
    """Two refusals after a good attempt do not throw the agent back to the reference."""
    message = told(database, stage, 3)

    assert isinstance(message, Solve | Reflect)
    assert (3, "twice as fast") == (message.node.node, message.node.source)
    assert Outcome.NO_CANDIDATE == message.node.verdict.verdict


def test_a_plan_that_never_was_is_repaired_from_what_it_was_to_improve(database: Database) -> None:
    """The debugger of a planner's failure gets the source that the planner was shown."""
    message = told(database, Stage.REPAIR, 2)

    assert isinstance(message, Repair)
    assert ("", "twice as fast") == (message.plan.advice, message.plan.scaffold)


def test_a_plan_without_code_is_inherited(database: Database) -> None:
    """Where there was a plan, its marks and its words stay."""
    message = told(database, Stage.REPAIR, 4)

    assert isinstance(message, Repair)
    assert ("Fuse.", "# marked\ntwice as fast") == (message.plan.advice, message.plan.scaffold)
    assert "" == message.node.source


def test_an_agent_is_told_what_the_task_has_already(database: Database) -> None:
    """The keys of all candidates, recorded and under way, and plans beside it for the same node:
    a model that computes what it writes does not write one of them again."""
    store = Store(database)
    work_messages = WorkMessages(store, ActivityStore(database), {"t": TASK})
    under_way = [
        Attempt(number=number, parent=parent, repair=False, stage=stage)
        for number, parent, stage in (
            (5, 1, Stage.PLAN),
            (6, 1, Stage.WRITE),
            (7, 0, Stage.WRITE),
            (8, 0, Stage.EVALUATE),
        )
    ]
    for attempt in under_way:
        store.save_attempt("t", attempt)
    store.save_plan("t", 6, Plan(advice="Widen.", scaffold=""))
    store.save_plan("t", 7, Plan(advice="Elsewhere.", scaffold=""))
    store.save_candidate("t", 8, Candidate(source="# by hand\nthree times as fast"))
    lease = Lease(work=work_id("t", 5, Stage.PLAN), epoch=1)
    for _ in range(2):
        message = work_messages.message_for(
            lease, OfferWork(Stage.PLAN, under_way[0], (1, 0)), under_way
        )
        assert isinstance(message, MakePlan)
        assert ("Widen.",) == message.planned
        expected = (source_key("twice as fast"), source_key("three times as fast"))
        assert expected == message.tried
