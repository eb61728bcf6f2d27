"""The cards that a request shows: those whose code can be used now.  Pure.

A card costs a kilobyte and a half.  It is shown to a model whose plan, or whose failing source, is
about the card's technique; and the first one of a task, where the source does not use its technique
yet, to a model that plans from a source far from the least time.
"""

from __future__ import annotations

from actors.agents.cards.card import Card, needed_cards
from actors.agents.cards.selection import card_lines, choose_cards
from actors.agents.cards.techniques import techniques_in
from actors.agents.requests.facts import attainable_us
from actors.agents.requests.knowledge import RequestKnowledge
from actors.agents.requests.request import shown_source
from protocol.messages import MakePlan, Repair, Solve, Write

FAR = 2.0  # times the least time


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
    source = shown_source(work)
    if isinstance(work, Write):
        return _with_needed([c for c in cards if _is_about(c, work.plan.advice)], cards)
    if not work.node.verdict.is_correct:
        return _with_needed([c for c in cards if _is_about(c, source)], cards)
    least, time = attainable_us(work.reference), work.node.score_us
    needed = {card.needs for card in cards}
    first = next((card for card in cards if card.name not in needed), None)
    if first is None or least is None or time is None or time < FAR * least:
        return ()
    if not _techniques(first) - techniques_in(source):
        return ()
    return _with_needed([first], cards)


def _is_about(card: Card, text: str) -> bool:
    return bool(techniques_in(card.code) & techniques_in(text))


def _techniques(card: Card) -> set[str]:
    """Return the card's own techniques, or those of the functions that it calls."""
    return techniques_in(card.code) or techniques_in(card.whole_code)


def _with_needed(chosen: list[Card], cards: tuple[Card, ...]) -> tuple[Card, ...]:
    """Return the chosen cards, each behind those that it needs."""
    names = {each.name for card in chosen for each in (*needed_cards(card, cards), card)}
    return tuple(card for card in cards if card.name in names)
