"""Chooses the cards of a request by fixed rules, and writes them as lines.

Pure and deterministic: the same task, device and bottleneck give the same cards.

1. A card is considered if it is for the task's backend, its code runs on the device, an input has
   the card's type, and the task's longest row is within the card's bounds.
2. The task's operations take turns, the dearest first by the measured times of PyTorch's operators
   (`operation_times`), the likely dearest where they are not known (`task_operations.ORDER`).
   Element-wise work takes a turn if it takes a tenth of the time, and after all others; not
   before them where the least time consists of operations: fused, it costs little of that.
3. Among the cards of an operation those for the given bottleneck come first, then those about this
   operation, then those for rows of the task's length, then, of cards for all rows, those with the
   largest measured effect beside torch (effects on different rows do not compare), then those with
   an epilogue where the task has one, then those of the newest architecture, then by name.
4. A card for any operation comes first where launches or latency are the bottleneck; else it is
   left out.
5. A card that needs others comes behind them, or not at all where there is no place for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from actors.agents.cards.card import (
    ANY_OPERATION,
    CUDA_ARCHITECTURE,
    MAX_PLACES,
    NOT_MEASURED,
    Card,
    load_cards,
    needed_cards,
)
from actors.agents.cards.operation_times import by_time
from actors.agents.cards.task_operations import longest_row, task_operations
from actors.agents.cards.techniques import techniques_in
from protocol.fact_lines import attainable_parts
from protocol.values import Backend, Device, Reference, Task

LAUNCH_BOUND = ("launch", "latency")
FLOOR_PARTS = {"bytes": "memory", "operations": "compute", "launch": "launch"}
SIDE_WORK = ("elementwise", "epilogue")
CPU_RANKS = {"cpu": 0, "asimd": 1, "avx2": 1, "sve": 2, "avx512f": 2, "amx_tile": 3}
HEADING = "## Verified building blocks"
INTRODUCTION = (
    "This code was right in a test on the device that it names, beside torch. "
    "Take, change or leave it: the judge decides."
)

OUTLINE_INTRODUCTION = (
    "Their code was right in a test on the device that its measurement names, beside torch there. "
    "The coder sees the code of those whose title, or instruction, your advice names."
)


def choose_cards(
    task: Task,
    reference: Reference,
    *,
    bottleneck: str = "",
    backends: Sequence[Backend] = (),
    cards: Iterable[Card] | None = None,
    techniques: Set[str] | None = None,
    named_in: str = "",
    most_places: int = MAX_PLACES,
) -> tuple[Card, ...]:
    """Return the cards for a task on its device, at most three; () where none fits.

    `bottleneck` is one of `card.BOTTLENECKS`; "": the largest part of the task's floor, where it
    was measured.  `backends`: those that candidates may use; (): the task's own.  `techniques`:
    those of which a card has to use one, unless its title is `named_in` a plan; the cards that it
    needs need not.  `most_places`: of the cards together.
    """
    bottleneck = bottleneck or floor_bottleneck(reference)
    operations = task_operations(task.source, reference.inputs)
    row = longest_row(reference.inputs, reference.outputs, operations)
    fitting = [
        card
        for card in (load_cards() if cards is None else cards)
        if card.backend in (backends or (task.backend,))
        and runs_on(card, reference.device)
        and _is_type_fitting(card, reference.inputs)
        and _is_row_within(card, row)
    ]
    leading = fitting if techniques is None else _meant(fitting, techniques, named_in)
    turns = _turns(operations, reference)
    if bottleneck == "compute":
        turns = [one for one in turns if one not in SIDE_WORK]
    if turns and bottleneck in LAUNCH_BOUND:
        turns.insert(0, ANY_OPERATION)
    chosen: list[Card] = []
    for group in (turns, ["elementwise"] if "elementwise" in operations else []):
        lists = [_ranked(leading, one, operations, bottleneck) for one in group]
        _take_turns(lists, chosen, fitting, most_places)
    return tuple(chosen)


def _meant(cards: Iterable[Card], techniques: Set[str], plan: str) -> list[Card]:
    """Return the cards that use one of the techniques, or whose title a plan has."""
    text = plan.lower()
    return [c for c in cards if techniques_in(c.code) & techniques or c.title.lower() in text]


def _take_turns(
    lists: list[list[Card]], chosen: list[Card], fitting: Iterable[Card], most_places: int
) -> None:
    """Add to `chosen` the next card of each list in turn that has a place, until none is left."""
    while any(lists):
        for ranked in lists:
            added: list[Card] = []
            while ranked and not added:
                added = _added(ranked.pop(0), chosen, fitting, most_places)
            chosen += added


def _turns(operations: tuple[str, ...], reference: Reference) -> list[str]:
    """Return the operations that take turns, in order."""
    times = reference.facts.operations if reference.facts is not None else ()
    ordered = by_time(operations, times) if times else operations
    return [one for one in ordered if one not in SIDE_WORK or (times and one == "elementwise")]


def _added(
    card: Card, chosen: Sequence[Card], fitting: Iterable[Card], most_places: int
) -> list[Card]:
    """Return the card behind those that it needs, without those chosen; [] without place."""
    needed = needed_cards(card, fitting)
    added = [each for each in (*needed, card) if each not in chosen]
    places = sum(each.places for each in (*chosen, *added))
    has_place = places <= most_places and bool(needed) == bool(card.needs)
    return added if has_place and card in added else []


def floor_bottleneck(reference: Reference) -> str:
    """Return what the task's least time consists of, by the judge's facts; "" if not measured."""
    parts = attainable_parts(reference.facts)
    return FLOOR_PARTS[max(parts, key=lambda name: parts[name])] if parts else ""


def card_lines(cards: Iterable[Card]) -> list[str]:
    """Return the section of a request that shows cards; [] for none."""
    lines: list[str] = []
    for card in cards:
        measured = "" if card.effect == NOT_MEASURED else f" Measured: {card.effect}."
        lines += ["", f"### {card.title}", "", f"For {card.architecture}.{measured}"]
        lines += card.text.splitlines()
    return [HEADING, "", INTRODUCTION, *lines] if lines else []


def card_outlines(cards: Iterable[Card]) -> list[str]:
    """Return the section that tells a planner of cards by their words, without their code."""
    lines = []
    for card in cards:
        measured = "" if card.effect == NOT_MEASURED else f" ({card.effect})"
        lines.append(f"- {card.title}{measured}. {' '.join(card.words.split())}")
    return [HEADING, "", OUTLINE_INTRODUCTION, "", *lines] if lines else []


def runs_on(card: Card, device: Device) -> bool:
    """Whether a card's code runs on a device."""
    if card.backend == "cpp":
        vector = device.facts.get("vector", "").replace(",", " ").split()
        return device.kind == "cpu" and (card.architecture == "cpu" or card.architecture in vector)
    capability = device.facts.get("compute capability", "").replace(".", "")
    found = CUDA_ARCHITECTURE.fullmatch(card.architecture)
    if device.kind != "cuda" or found is None or not capability.isdigit():
        return False
    if found[2] == "a":  # instructions of this architecture alone
        return int(capability) == int(found[1])
    return int(capability) >= int(found[1])


def _ranked(
    cards: Iterable[Card], operation: str, operations: tuple[str, ...], bottleneck: str
) -> list[Card]:
    def key(card: Card) -> tuple[bool, bool, bool, float, bool, int, str]:
        is_for_rows = bool(card.least_row or card.most_row)
        return (
            bool(bottleneck) and bottleneck not in card.bottleneck,
            card.operations[0] != operation,
            not is_for_rows,
            0.0 if is_for_rows else -card.speedup,
            "epilogue" not in set(card.operations) & set(operations),
            -_newness(card),
            card.name,
        )

    return sorted((card for card in cards if operation in card.operations), key=key)


def _newness(card: Card) -> int:
    found = CUDA_ARCHITECTURE.fullmatch(card.architecture)
    if found is None:
        return CPU_RANKS[card.architecture]
    return 2 * int(found[1]) + (found[2] == "a")


def _is_type_fitting(card: Card, inputs: str) -> bool:
    """Whether an input has a type of the card's, or none has a type of its own."""
    types = [one.strip() for one in card.dtype.split(",")]
    return not card.dtype or "float" not in inputs or any(f"{one}[" in inputs for one in types)


def _is_row_within(card: Card, row: int | None) -> bool:
    if row is None:
        return True
    return card.least_row <= row and (card.most_row is None or row <= card.most_row)
