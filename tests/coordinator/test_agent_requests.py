"""The messages for agents, made from a store: nodes without code of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from actors.coordinator.gateway.work_messages import WorkMessages, work_id
from actors.coordinator.search.attempt_stages import Attempt, Stage
from actors.coordinator.search.search import OfferWork
from actors.coordinator.storage.activity_store import ActivityStore
from actors.coordinator.storage.database import Database
from actors.coordinator.storage.directive_store import DirectiveStore
from actors.coordinator.storage.store import Store
from protocol.messages import Evaluate, Lease, MakePlan, Reflect, Repair, Solve, Work
from protocol.values import Candidate, Outcome, Plan, Reference, Task, Verdict, source_key

TASK = Task(name="t", source="the reference")
NO_CANDIDATE = Verdict(verdict=Outcome.NO_CANDIDATE, reason="the model refused to answer")
CORRECT = Verdict(verdict=Outcome.CORRECT, median_us=5.0, speedup=2.0)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """0 - 1 (correct) - 2 (no candidate) - 3 (none either), and 4 below 1, a plan without code."""
    with closing(Database(tmp_path)) as database:
        store = Store(database)
        store.add_task(TASK, 9)
        store.set_reference("t", Reference(eager_us=10.0), 0.0)
        for number, parent in ((1, 0), (2, 1), (3, 2), (4, 1)):
            attempt = Attempt(number=number, parent=parent, repair=False, stage=Stage.SOLVE)
            store.save_attempt("t", attempt)
            if number == 1:
                store.save_candidate("t", 1, Candidate(source="twice as fast"))
            if number == 4:
                store.save_plan("t", 4, Plan(advice="Fuse.", scaffold="# marked\ntwice as fast"))
            store.add_node("t", number, CORRECT if number == 1 else NO_CANDIDATE, None, 0.0)
        yield database


def message_for(database: Database, stage: Stage, parent: int) -> Work:
    """Return the message for the agent of attempt 5, which grows `parent`."""
    attempt = Attempt(number=5, parent=parent, repair=stage is Stage.REPAIR, stage=stage)
    store = Store(database)
    store.save_attempt("t", attempt)
    work_messages = WorkMessages(
        store, ActivityStore(database), DirectiveStore(database), {"t": TASK}
    )
    lease = Lease(work=work_id("t", 5, stage), epoch=1)
    return work_messages.message_for(lease, OfferWork(stage, attempt, (parent, 0)))


@pytest.mark.parametrize("stage", [Stage.SOLVE, Stage.REFLECT])
def test_a_chain_goes_on_from_its_last_code(database: Database, stage: Stage) -> None:
    """After two refusals the agent gets the source of the last good attempt, not the reference."""
    message = message_for(database, stage, 3)

    assert isinstance(message, Solve | Reflect)
    assert (3, "twice as fast") == (message.node.node, message.node.source)
    assert Outcome.NO_CANDIDATE == message.node.verdict.verdict


def test_an_attempt_without_a_plan_is_repaired_from_its_parents_source(database: Database) -> None:
    """After a planner's failure the debugger gets the source that the planner saw."""
    message = message_for(database, Stage.REPAIR, 2)

    assert isinstance(message, Repair)
    assert ("", "twice as fast") == (message.plan.advice, message.plan.scaffold)


def test_a_plan_without_code_is_inherited(database: Database) -> None:
    """The debugger gets the plan's advice and its scaffold."""
    message = message_for(database, Stage.REPAIR, 4)

    assert isinstance(message, Repair)
    assert ("Fuse.", "# marked\ntwice as fast") == (message.plan.advice, message.plan.scaffold)
    assert "" == message.node.source


def test_a_message_has_the_tasks_candidates_and_the_plans_under_way(database: Database) -> None:
    """It has the keys of all candidates, recorded and under way, and plans for the same node.

    So a computed model does not write one of them again.
    """
    store = Store(database)
    work_messages = WorkMessages(
        store, ActivityStore(database), DirectiveStore(database), {"t": TASK}
    )
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


@pytest.mark.parametrize(("low", "high", "doubtful"), [(0.5, 0.9, True), (0.9, 1.2, False)])
def test_a_confirmation_says_whether_the_first_look_was_slower(
    database: Database, low: float, high: float, doubtful: bool
) -> None:
    """The evaluator then looks once more before it makes the release checks.

    In a run that was told to finish, a wide interval brings no further rounds: `adopt all` then
    stopped runs whose winners had been judged again four times, and were not confirmed.
    """
    store = Store(database)
    store.count_start(0.0)
    store.save_attempt("t", Attempt(number=6, parent=0, repair=False, stage=Stage.EVALUATE))
    store.save_candidate("t", 6, Candidate(source="slow"))
    verdict = Verdict(verdict=Outcome.CORRECT, speedup=(low + high) / 2, speedup_ci95=(low, high))
    store.add_node("t", 6, verdict, 10.0, 0.0)
    directives = DirectiveStore(database)
    makes = WorkMessages(store, ActivityStore(database), directives, {"t": TASK})
    lease = Lease(work=work_id("t", 6, Stage.CONFIRM), epoch=1)
    again = Attempt(number=6, parent=0, repair=False, stage=Stage.CONFIRM)
    message = makes.message_for(lease, OfferWork(Stage.CONFIRM, again))
    assert isinstance(message, Evaluate)
    assert (doubtful, 3, 15) == (message.is_doubtful, message.rounds, message.most_rounds)
    directives.set_finishing(finishing=True)
    message = makes.message_for(lease, OfferWork(Stage.CONFIRM, again))
    assert isinstance(message, Evaluate)
    assert (3, 3) == (message.rounds, message.most_rounds)
