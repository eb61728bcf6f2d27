"""`--knowledge`: which facts and cards a compact request shows; paper requests have none."""

from __future__ import annotations

import pytest
from agent_fakes import make_plan
from msgspec.structs import replace

from actors.agents.models.replay_key import without_measurements
from actors.agents.requests.knowledge import RequestKnowledge
from actors.agents.requests.styles import make_request
from protocol.facts import ReferenceFacts, TaskFloor, UnitShare, VerdictFacts
from protocol.messages import MakePlan
from protocol.settings import KNOWLEDGE, Knowledge
from protocol.values import Device, LedgerEntry, Outcome, Verdict

UNITS = (UnitShare(unit="DRAM", share=0.91),)
RULE = "Tolerance: 1e-4 of the scale."
FACTS = ReferenceFacts(floor=TaskFloor(memory_us=9.0), rule_lines=(RULE,))
VERDICT_FACTS = VerdictFacts(
    host_us=400.0,
    device_us=100.0,
    median_us=410.0,
    launches=77,
    profile_sentences=("DRAM was 91 % busy.",),
    unit_shares=UNITS,
    fault_location="kernel f, line 7",
)
VECTOR = Device(kind="cpu", facts={"vector": "512 bits, avx512f"})
PARTS = {
    "facts": "77 launches a call",
    "profile": "DRAM was 91 % busy.",
    "cards": "## Verified building blocks",
}


def plan_work() -> MakePlan:
    """A plan for a task with facts, cards and a judged node."""
    work = make_plan()
    verdict = Verdict(verdict=Outcome.CORRECT, median_us=410.0, speedup=1.2, facts=VERDICT_FACTS)
    return replace(
        work,
        reference=replace(work.reference, facts=FACTS, device=VECTOR),
        node=replace(work.node, node=3, parent=0, verdict=verdict, score_us=410.0),
        ledger=(
            LedgerEntry(number=2, parent=0, outcome=Outcome.CORRECT, score_us=500.0, units=UNITS),
        ),
    )


@pytest.mark.parametrize("kind", KNOWLEDGE)
def test_a_request_shows_the_chosen_knowledge(kind: Knowledge) -> None:
    """Each kind shows its own part alone, `all` all, `none` nothing; the judge's rules always."""
    text = make_request(plan_work(), 1000, "compact", RequestKnowledge(kind=kind)).render()
    shown = {name for name, mark in PARTS.items() if mark in text}

    assert (set(PARTS) if kind == "all" else {kind} & set(PARTS)) == shown
    assert ("DRAM 91%" in text) == (kind in ("profile", "all"))
    assert RULE in text


def test_paper_requests_show_no_cards() -> None:
    """The paper's requests are the same with any knowledge."""
    texts = {
        make_request(plan_work(), 1000, "paper", RequestKnowledge(kind=kind)).render()
        for kind in KNOWLEDGE
    }
    assert 1 == len(texts)
    assert PARTS["cards"] not in texts.pop()


def test_a_replay_finds_a_request_with_other_cards() -> None:
    """Cards depend on the machine, so they are not part of the key of a stored request."""
    other = plan_work()
    other = replace(other, reference=replace(other.reference, device=Device()))
    keys = {
        without_measurements(make_request(work, 1000, "compact").render())
        for work in (plan_work(), other)
    }
    assert 1 == len(keys)


def test_cards_are_the_same_in_all_requests_of_a_task() -> None:
    """Facts of an attempt do not change the part of a request that servers cache."""
    plain = replace(plan_work(), node=make_plan().node)
    texts = {make_request(work, 1000, "compact").stable_text for work in (plan_work(), plain)}
    assert 1 == len(texts)
