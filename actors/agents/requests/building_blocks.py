"""The cards that a request shows: those whose code can be used now.  Pure.

A card costs one to five kilobytes.  It is shown to a model whose plan names it or brings its
technique into the source, or whose failing source is about it (of a source that does not compile,
the compiler's words); and the first one of a task, where the source does not use its technique yet,
to a model that begins from a source far from the least time.  A planner, which writes no code,
reads its title and its effect.  A repair has one place of cards where one about its technique fits.
"""

from __future__ import annotations

from collections.abc import Set

from actors.agents.cards.card import MAX_PLACES, Card, needed_cards
from actors.agents.cards.selection import card_lines, card_outlines, choose_cards
from actors.agents.cards.techniques import techniques_in
from actors.agents.requests.facts import attainable_us
from actors.agents.requests.knowledge import RequestKnowledge
from actors.agents.requests.request import shown_source
from protocol.messages import MakePlan, Repair, Solve, Write
from protocol.values import Outcome

FAR = 2.0  # times the least time


def building_block_lines(
    work: MakePlan | Write | Repair | Solve, knowledge: RequestKnowledge
) -> list[str]:
    """Return the lines of the cards that this request shows."""
    if not knowledge.has_cards:
        return []
    if isinstance(work, Write):
        new = techniques_in(work.plan.advice) - techniques_in(shown_source(work))
        return card_lines(_chosen(work, new, work.plan.advice))
    verdict = work.node.verdict
    if not verdict.is_correct:
        about = techniques_in(shown_source(work))
        if verdict.verdict is Outcome.COMPILE_FAILED:
            about &= techniques_in(verdict.log)
        return card_lines(_chosen(work, about, most_places=1) or _chosen(work, about))
    cards = _first_card(work)
    return card_outlines(cards) if isinstance(work, MakePlan) else card_lines(cards)


def _chosen(
    work: MakePlan | Write | Repair | Solve,
    techniques: Set[str] | None = None,
    named_in: str = "",
    most_places: int = MAX_PLACES,
) -> tuple[Card, ...]:
    return choose_cards(
        work.task,
        work.reference,
        backends=(work.task.backend, *work.task.other_backends),
        techniques=techniques,
        named_in=named_in,
        most_places=most_places,
    )


def _first_card(work: MakePlan | Repair | Solve) -> tuple[Card, ...]:
    """Return the first card of the task, behind those that it needs.

    () where the source is near the least time, or uses the card's technique.
    """
    cards = _chosen(work)
    least, time = attainable_us(work.reference), work.node.score_us
    needed = {card.needs for card in cards}
    first = next((card for card in cards if card.name not in needed), None)
    if first is None or least is None or time is None or time < FAR * least:
        return ()
    if not _techniques(first) - techniques_in(shown_source(work)):
        return ()
    return (*needed_cards(first, cards), first)


def _techniques(card: Card) -> set[str]:
    """Return the card's own techniques, or those of the functions that it calls."""
    return techniques_in(card.code) or techniques_in(card.whole_code)
