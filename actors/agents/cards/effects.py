"""Writes measured effects into cards: from the rows of `python -m tests.cards --json FILE`.

A card whose results were right on all samples gets the figures of its first timed sample, and the
day as its last check.  An effect in a person's words, such as that of a part in a larger kernel,
stays: the sample times the part alone.  A card with a wrong result is left as it is, and named.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from protocol.values import Value

EFFECT = re.compile(r"^effect: .*$", re.MULTILINE)
WRITTEN_HERE = re.compile(
    r"^effect: (?:not measured|[^:\n]+: [\d.]+x torch(?:, [\d.,]+ [\w/]+(?: a \w+)?)?)$",
    re.MULTILINE,
)
CHECKED = re.compile(r"^checked: .*$", re.MULTILINE)


class MeasuredRow(Value, frozen=True, kw_only=True):
    """One sample's run of a card."""

    name: str
    device: str  # "H100", "16 cores"
    is_right: bool
    us: float | None = None
    torch_us: float | None = None
    figure: str = ""  # "229 TFLOP/s"


def effects_of(rows: Iterable[MeasuredRow]) -> dict[str, str]:
    """Return for each card its effect, "H100: 4.58x torch, 229 TFLOP/s"; "" if one was wrong."""
    effects: dict[str, str] = {}
    for row in rows:
        if not row.is_right:
            effects[row.name] = ""
        elif row.us and row.torch_us and row.name not in effects:
            effects[row.name] = f"{row.device}: {row.torch_us / row.us:.2f}x torch, {row.figure}"
    return effects


def with_effects(texts: Mapping[str, str], effects: Mapping[str, str], day: str) -> dict[str, str]:
    """Return the texts of the cards that have an effect, with the day, and with it if they may."""
    changed: dict[str, str] = {}
    for name, effect in effects.items():
        if effect and name in texts:
            text = texts[name]
            if WRITTEN_HERE.search(text):
                text = EFFECT.sub(f"effect: {effect}", text, count=1)
            changed[name] = CHECKED.sub(f"checked: {day}", text, count=1)
    return changed
