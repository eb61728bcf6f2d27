"""What requests know besides the method's own parts: facts, a profiler's words, cards, lessons.

`--knowledge` chooses one of them, all or none, so that runs can be compared with and without each.
Rules that a candidate is judged by are not knowledge: every request shows them.  Pure.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from actors.agents.cards.lessons import lesson_lines
from protocol.facts import ReferenceFacts, VerdictFacts
from protocol.messages import MakePlan, Repair, Solve, Write
from protocol.settings import Knowledge
from protocol.values import AttemptView, Reference, Value, Verdict

W = TypeVar("W", bound=MakePlan | Write | Repair | Solve)


class RequestKnowledge(Value, frozen=True, kw_only=True):
    """What the requests of a run may show."""

    kind: Knowledge = "all"
    has_lessons: bool = False  # accepted lines of earlier runs: off, so that runs know the same

    @property
    def has_facts(self) -> bool:
        return self.kind in ("facts", "all")

    @property
    def has_profile(self) -> bool:
        return self.kind in ("profile", "all")

    @property
    def has_cards(self) -> bool:
        return self.kind in ("cards", "all")


def with_knowledge(work: W, knowledge: RequestKnowledge) -> W:
    """Return the work without the facts that its request may not show."""
    if knowledge.kind == "all":
        return work
    return replace(
        work,
        reference=_reference(work.reference, knowledge),
        root=_view(work.root, knowledge),
        node=_view(work.node, knowledge),
        window=tuple(_view(entry, knowledge) for entry in work.window),
        best=None if work.best is None else _view(work.best, knowledge),
        ledger=tuple(
            entry if knowledge.has_profile else replace(entry, units=()) for entry in work.ledger
        ),
    )


def known_lessons(
    work: MakePlan | Write | Repair | Solve, knowledge: RequestKnowledge
) -> list[str]:
    """Return the lines of lessons about a task: the same in all its requests."""
    return lesson_lines(work.task, work.reference) if knowledge.has_lessons else []


def _reference(reference: Reference, knowledge: RequestKnowledge) -> Reference:
    if knowledge.has_facts or reference.facts is None:
        return reference
    return replace(reference, facts=ReferenceFacts(rule_lines=reference.facts.rule_lines))


def _view(view: AttemptView, knowledge: RequestKnowledge) -> AttemptView:
    return replace(view, verdict=known_verdict(view.verdict, knowledge))


def known_verdict(verdict: Verdict, knowledge: RequestKnowledge) -> Verdict:
    facts = verdict.facts
    if facts is None:
        return verdict
    kept = facts if knowledge.has_facts else VerdictFacts()
    shown = facts if knowledge.has_profile else VerdictFacts()
    return replace(
        verdict,
        facts=replace(
            kept,
            profile_sentences=shown.profile_sentences,
            no_profile=shown.no_profile,
            unit_shares=shown.unit_shares,
            fault_location=shown.fault_location,
        ),
    )
