"""The ledger in the real coordinator: the same work has the same request, whatever happens."""

from __future__ import annotations

import pytest
from in_process_run import InProcessRun, MakeRun
from msgspec.structs import replace

from actors.agents.requests.styles import make_request
from actors.coordinator.gateway.work_messages import WorkMessages
from actors.coordinator.search.attempt_stages import Attempt, Stage
from actors.coordinator.search.search import OfferWork
from actors.coordinator.storage.decisions import DecisionStore
from protocol.messages import AgentWork, MakePlan
from protocol.values import LedgerEntry


def asked(run: InProcessRun, requests: dict[str, set[str]]) -> None:
    """Add the requests of all work that the present coordinator has sent."""
    for message in run.socket.sent:
        if isinstance(message, AgentWork):
            text = make_request(message, 1000, "compact").render()
            requests.setdefault(message.lease.work, set()).add(text)


def unconfirmed(message: AgentWork, confirmed: set[int]) -> list[LedgerEntry]:
    """Return the ledger; of nodes that were judged again, without what that has changed."""
    return [
        replace(entry, score_us=None, outcome=None, reason="")
        if entry.number in confirmed
        else entry
        for entry in message.ledger
    ]


@pytest.mark.parametrize("strategy", ["stark", "one-answer"])
def test_work_that_is_leased_again_has_the_same_request(make_run: MakeRun, strategy: str) -> None:
    """The coordinator is killed after every few rounds, with three attempts under way: an agent
    that gets its work again asks what it asked, so that its paid reply answers."""
    run = make_run(prompts="compact", strategy=strategy, in_flight=3, budget=14)
    requests: dict[str, set[str]] = {}
    for rounds in (2, 3, 2, 4, 3, 5, 2, 3):
        run.rounds(rounds)
        asked(run, requests)
        run.crash()
        run.start()
    run.run_out()
    asked(run, requests)

    stage = "plan" if strategy == "stark" else "solve"
    assert 14 == len({work.split("/")[1] for work in requests})
    assert all(len(texts) == 1 for texts in requests.values())
    ledgers = [next(iter(texts)) for work, texts in requests.items() if work.endswith(stage)]
    assert any("under way, is being planned" in text for text in ledgers)
    assert any("Look at another side" in text for text in ledgers)
    assert any(", the fastest" in text for text in ledgers)
    assert [] == run.differences()


def test_a_request_can_be_made_again_when_the_run_is_over(make_run: MakeRun) -> None:
    """Nodes that were recorded, confirmed or rejected later change no earlier ledger."""
    run = make_run(prompts="compact", in_flight=2, budget=10)
    run.run_to(6)
    best = max(entry for entry, *_ in run.rows("SELECT number FROM node WHERE score_us > 0"))
    assert ("applied", "") == run.steer("reject", best, task="t", text="not honest")
    run.run_out()
    sent = [m for m in run.socket.sent if isinstance(m, MakePlan)]
    coordinator = run.coordinator
    rebuilt = WorkMessages(
        coordinator.store,
        coordinator.activity,
        coordinator.directives,
        {task.name: task for task, _, _ in coordinator.store.tasks()},
        DecisionStore(run.database),
    )

    confirmed = {number for (number,) in run.rows("SELECT number FROM node WHERE confirmed > 0")}
    assert 5 < len(sent)
    for message in sent:
        attempt = Attempt(
            number=message.attempt, parent=message.node.node, repair=False, stage=Stage.PLAN
        )
        again = rebuilt.message_for(message.lease, OfferWork(Stage.PLAN, attempt))
        assert isinstance(again, MakePlan)
        assert unconfirmed(message, confirmed) == unconfirmed(again, confirmed)
