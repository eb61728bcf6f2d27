"""Measured effects of cards: from a run's rows into the cards' headers."""

from __future__ import annotations

from actors.agents.cards.card import load_cards, parse_card
from actors.agents.cards.effects import MeasuredRow, effects_of, with_effects


def row(name: str, *, is_right: bool = True, us: float | None = None) -> MeasuredRow:
    """A sample's run that took `us`, and torch 100."""
    return MeasuredRow(
        name=name, device="H100", is_right=is_right, us=us, torch_us=100.0, figure="9 GB/s"
    )


def test_the_first_timed_sample_of_a_right_card_is_its_effect() -> None:
    """A small sample has no figure; a later timed one does not replace the first."""
    rows = [row("a"), row("a", us=40.0), row("a", us=10.0), row("b")]
    assert {"a": "H100: 2.50x torch, 9 GB/s"} == effects_of(rows)


def test_a_card_with_a_wrong_result_keeps_what_it_says() -> None:
    """One wrong sample, before or after the timed one, and no effect is written."""
    before, after = row("a", is_right=False), row("a", us=40.0)
    assert {"a": ""} == effects_of([before, after]) == effects_of([after, before])
    assert {} == with_effects({"a": "effect: x\n"}, {"a": ""}, "2026-11-22")


def test_a_written_effect_is_what_the_card_then_says() -> None:
    """Only the effect and the day of the header change; the speed-up is read from it."""
    text = (
        "---\neffect: H200: 1.50x torch, 5.44 us a step\nchecked: 2000-01-01\n---\neffect: stays\n"
    )
    changed = with_effects({"a": text}, {"a": "H100: 2.50x torch, 9 GB/s"}, "2026-11-22")["a"]

    assert changed.splitlines()[1:3] == ["effect: H100: 2.50x torch, 9 GB/s", "checked: 2026-11-22"]
    assert "effect: stays" in changed
    in_words = text.replace("1.50x torch, 5.44 us a step", "6.44x torch in causal attention")
    kept = with_effects({"a": in_words}, {"a": "H100: 0.46x torch, 9 GB/s"}, "2026-11-22")["a"]
    assert kept == in_words.replace("2000-01-01", "2026-11-22")


def test_the_speedup_of_a_card_is_read_from_its_effect() -> None:
    """A card without a comparison counts as torch itself, neither better nor worse."""
    text = """---
title: t
backend: cuda
architecture: sm_80+
operations: conv
bottleneck: memory
source: s
effect: {effect}
checked: 2026-11-22
---

```cuda
int i;
```
"""
    for effect, speedup in (("H100: 4.58x torch, 229 TFLOP/s", 4.58), ("16 cores: 46 GB/s", 1.0)):
        assert speedup == parse_card("cuda-c", text.format(effect=effect)).speedup
    assert all(card.speedup > 0 for card in load_cards())
