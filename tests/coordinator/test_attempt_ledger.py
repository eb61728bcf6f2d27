"""The ledger: what it lists, and that it is the same whenever the same request is made."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from actors.coordinator.gateway.work_messages import WorkMessages, work_id
from actors.coordinator.search.attempt_stages import Attempt, Stage
from actors.coordinator.search.search import OfferWork
from actors.coordinator.storage.activity_store import ActivityStore
from actors.coordinator.storage.database import Database
from actors.coordinator.storage.decisions import DecisionStore
from actors.coordinator.storage.directive_store import DirectiveStore
from actors.coordinator.storage.store import Store
from protocol.facts import UnitShare, VerdictFacts
from protocol.messages import AgentWork, Lease
from protocol.values import Call, Candidate, LedgerEntry, Outcome, Plan, Reference, Task, Verdict
from scripts.story import story

TASK = Task(name="t", source="the reference")
UNITS = (UnitShare(unit="DRAM", share=0.9),)
WRONG = Verdict(verdict=Outcome.WRONG, reason="row 3")


class LedgerRun:
    """A store in which attempts are decided on, planned and recorded by hand."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.store = Store(database)
        self.recorded = 0
        self.store.add_task(TASK, 99)
        self.store.set_reference("t", Reference(eager_us=100.0), 0.0)

    def decide(self, number: int, stage: Stage, parent: int = 0) -> None:
        attempt = Attempt(number=number, parent=parent, repair=stage is Stage.REPAIR, stage=stage)
        self.store.save_attempt("t", attempt)
        DecisionStore(self.database).add("t", OfferWork(stage, attempt, (parent, 0)), self.recorded)

    def plan(self, number: int, advice: str) -> None:
        self.store.save_plan("t", number, Plan(advice=advice, scaffold=""))

    def record(self, number: int, score_us: float | None) -> None:
        facts = VerdictFacts(unit_shares=UNITS)
        correct = Verdict(verdict=Outcome.CORRECT, median_us=score_us, facts=facts)
        verdict = correct if score_us else WRONG
        self.store.save_candidate("t", number, Candidate(source=f"source {number}"))
        self.store.add_node("t", number, verdict, score_us, 0.0)
        self.recorded += 1

    def message(self, number: int, stage: Stage, parent: int = 0) -> AgentWork:
        """Return the message of an attempt's stage, made by a new process."""
        attempt = Attempt(number=number, parent=parent, repair=False, stage=stage)
        maker = WorkMessages(
            self.store,
            ActivityStore(self.database),
            DirectiveStore(self.database),
            {"t": TASK},
            DecisionStore(self.database),
        )
        lease = Lease(work=work_id("t", number, stage), epoch=1)
        message = maker.message_for(lease, OfferWork(stage, attempt, (parent, 0)))
        assert isinstance(message, AgentWork)
        return message


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LedgerRun]:
    with closing(Database(tmp_path)) as database:
        yield LedgerRun(database)


def test_it_lists_what_ended_and_what_is_under_way(run: LedgerRun) -> None:
    """Recorded attempts with time or reason; of those under way the idea, once it is known."""
    for number in (1, 2, 3, 4):
        run.decide(number, Stage.PLAN)
    run.plan(1, "Fuse.")
    run.record(1, 50.0)
    run.record(2, None)
    run.plan(3, "Tile.")
    run.decide(3, Stage.WRITE)
    run.decide(5, Stage.PLAN, parent=1)

    message = run.message(5, Stage.PLAN, parent=1)

    correct = LedgerEntry(
        number=1, parent=0, idea="Fuse.", outcome=Outcome.CORRECT, score_us=50.0, units=UNITS
    )
    assert message.ledger == (
        correct,
        LedgerEntry(number=2, parent=0, outcome=Outcome.WRONG, reason="row 3"),
        LedgerEntry(number=3, parent=0, idea="Tile.", stage="write"),
        LedgerEntry(number=4, parent=0, stage="plan"),
    )
    assert message.best is None  # it is the node itself


def test_it_shows_what_was_known_when_the_work_was_decided_on(run: LedgerRun) -> None:
    """Nodes, plans and decisions that came later change no byte: a stored reply still answers."""
    run.decide(1, Stage.PLAN)
    run.decide(2, Stage.PLAN)
    before = run.message(2, Stage.PLAN)
    run.plan(1, "Fuse.")
    run.decide(1, Stage.WRITE)
    run.record(1, 50.0)
    run.decide(3, Stage.PLAN)
    run.plan(2, "Mine.")

    after = run.message(2, Stage.PLAN)
    assert replace(after, tried=()) == before  # `tried` is in no prompt
    assert before.ledger == (LedgerEntry(number=1, parent=0, stage="plan"),)


def test_the_fastest_source_is_shown_to_those_that_plan(run: LedgerRun) -> None:
    """The fastest node then, also deep in another subtree; of equals the oldest."""
    for number, score in ((1, 50.0), (2, 40.0), (3, 40.0), (4, 90.0)):
        run.decide(number, Stage.SOLVE, parent=number - 1)
        run.record(number, score)
    run.decide(5, Stage.PLAN, parent=4)
    run.decide(5, Stage.WRITE, parent=4)
    run.decide(6, Stage.SOLVE, parent=2)
    run.record(5, 10.0)

    planner, coder = run.message(5, Stage.PLAN, parent=4), run.message(5, Stage.WRITE, parent=4)
    assert planner.best is not None
    assert (2, "source 2") == (planner.best.node, planner.best.source)
    assert coder.best is None
    assert 4 == len(coder.ledger)
    assert run.message(6, Stage.SOLVE, parent=2).best is None


def test_a_long_ledger_is_cut_at_its_old_end(run: LedgerRun) -> None:
    """Of many attempts the latest are listed and the others counted; the fastest stays in view."""
    for number in range(1, 81):
        run.decide(number, Stage.SOLVE)
        run.record(number, 100.0 - number if number != 7 else 1.0)
    run.decide(81, Stage.PLAN, parent=80)
    message = run.message(81, Stage.PLAN, parent=80)

    assert (60, 20) == (len(message.ledger), message.ledger_left_out)
    assert 80 == message.ledger[-1].number
    assert message.best is not None
    assert 7 == message.best.node


def test_a_run_of_an_older_version_has_none(run: LedgerRun) -> None:
    """Without recorded decisions nothing is known of that moment: the ledger is empty."""
    run.store.save_attempt("t", Attempt(number=1, parent=0, repair=False, stage=Stage.PLAN))

    assert () == run.message(1, Stage.PLAN).ledger


def test_the_story_tells_edits_and_questions(run: LedgerRun, tmp_path: Path) -> None:
    """An attempt's history says what its answer changed, and why a reply was asked for again."""
    run.decide(1, Stage.PLAN)
    again = "That answer can't be used: line 3 is meant twice.\n\nAnswer once more: '## Edits'."
    for request in ("[user]\n\nthe task\n", f"[user]\n\nthe task\n\n[user]\n\n{again}\n"):
        call = Call(model="m", request=request, reply="r", seconds=1.0)
        ActivityStore(run.database).add_call("t/1/write", "coder", call, 100.0)
    edits = ("span 1 (lines 3-4): 2 lines become 1", "after line 9: 2 new")
    run.store.save_candidate("t", 1, Candidate(source="a\nb\n", edits=edits))
    run.database.commit()
    with closing(sqlite3.connect(tmp_path / "run.db")) as stored:
        lines = "\n".join(story(stored, tmp_path, "1"))

    assert lines.count("reply bought") == 2
    assert "write reply can't be used, asked again: line 3 is meant twice\n" in lines
    assert f"answered as 2 edits of node 0, a file of 2 lines; {'; '.join(edits)}" in lines
