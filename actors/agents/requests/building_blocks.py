"""The cards that a request shows: all that were chosen for a first design, later what fits.  Pure.

A card costs a kilobyte and a half, so one is shown where its code can be used: to a model that
begins with the module as it was given; to one whose plan, or whose failing source, is about the
card's technique; and the first, where the source does not use its technique, to a planner whose
source is far from the reference's floor.
"""

from __future__ import annotations

from actors.agents.cards.card import Card
from actors.agents.cards.selection import card_lines, choose_cards
from actors.agents.cards.techniques import techniques_in
from actors.agents.requests.facts import least_us
from actors.agents.requests.knowledge import RequestKnowledge
from actors.agents.requests.request import shown_source
from protocol.messages import MakePlan, Repair, Solve, Write

FAR_FROM_FLOOR = 2.0  # times the least time of the reference's own work


def building_block_lines(
    work: MakePlan | Write | Repair | Solve, knowledge: RequestKnowledge
) -> list[str]:
    """Return the lines of the cards that this request shows."""
    if not knowledge.has_cards:
        return []
    backends = (work.task.backend, *work.task.other_backends)
    cards = choose_cards(work.task, work.reference, backends=backends)
    return card_lines(_shown(cards, work))


def _shown(cards: tuple[Card, ...], work: MakePlan | Write | Repair | Solve) -> tuple[Card, ...]:
    if work.node.node == work.root.node:
        return cards
    source = shown_source(work)
    if isinstance(work, Write):
        return _using(cards, work.plan.advice)
    if not work.node.verdict.is_correct:
        return _using(cards, source)
    least, time = least_us(work.reference), work.node.score_us
    if not least or time is None or time < FAR_FROM_FLOOR * least:
        return ()
    used = techniques_in(source)
    return tuple(card for card in cards[:1] if techniques_in(card.code) - used)


def _using(cards: tuple[Card, ...], text: str) -> tuple[Card, ...]:
    """Return the cards with a technique of the text, and those that they need."""
    found = techniques_in(text)
    using = [card for card in cards if techniques_in(card.code) & found]
    needed = {card.needs for card in using}
    return tuple(card for card in cards if card in using or card.name in needed)
