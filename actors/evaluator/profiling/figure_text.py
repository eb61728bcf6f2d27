"""Figures as text, for sentences."""

from __future__ import annotations


def share_text(part: float) -> str:
    """Return "42%", or "less than 1%"."""
    return f"{part:.0%}" if part >= 0.01 else "less than 1%"


def ratio_text(ratio: float) -> str:
    """Return a ratio with two digits, large ones whole: "0.54", "3.2", "987"."""
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def number_text(amount: float) -> str:
    """Return a count: "1,234", "1.5 million"."""
    for name, size in (("billion", 1e9), ("million", 1e6)):
        if amount >= size:
            return f"{amount / size:.3g} {name}"
    return f"{amount:,.0f}"
