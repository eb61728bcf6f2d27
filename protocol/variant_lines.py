"""The variants of a candidate as lines of text, for a model and for a person."""

from __future__ import annotations

import textwrap

from protocol.figure_text import us
from protocol.values import Outcome, VariantResult, Verdict

REASON_CHARS = 120


def variant_lines(verdict: Verdict) -> list[str]:
    """Return a line for each variant, the fastest first; [] for a candidate without variants."""
    return [
        f"variant {_values(result)}: {_outcome(result, is_kept=is_kept)}"
        for place, result in sorted(enumerate(verdict.variants), key=lambda pair: _order(pair[1]))
        for is_kept in [place == verdict.variant]
    ]


def raced_line(verdict: Verdict) -> list[str]:
    """Return the race in a line, for a model; of variants that failed alike, one has its reason."""
    known = sorted(enumerate(verdict.variants), key=lambda pair: _order(pair[1]))
    correct = [
        f"{_values(result)} {us(result.median_us)}{kept}"
        for place, result in known
        for kept in [" (kept, timed in full)" if place == verdict.variant else ""]
        if result.verdict is Outcome.CORRECT and result.median_us is not None
    ]
    failed: dict[Outcome, list[VariantResult]] = {}
    for _place, result in known:
        if result.verdict not in (None, Outcome.CORRECT):
            failed.setdefault(result.verdict, []).append(result)
    parts = ["; ".join(correct)] if correct else []
    for outcome, alike in failed.items():
        reason = textwrap.shorten(alike[0].reason, REASON_CHARS, placeholder="…")
        is_new = reason and not verdict.reason.startswith(reason.rstrip("…"))
        told = f" ({reason})" if is_new else ""
        parts.append(f"{outcome.replace('_', ' ')}: {'; '.join(map(_values, alike))}{told}")
    return [f"Variants, timed roughly: {'. '.join(parts)}"] if parts else []


def _values(result: VariantResult) -> str:
    return ", ".join(f"{name}={value}" for name, value in result.values.items())


def _outcome(result: VariantResult, *, is_kept: bool) -> str:
    if result.verdict is None:
        return "the only one"
    if result.verdict is not Outcome.CORRECT:
        return f"{result.verdict}, {result.reason[:REASON_CHARS]}"
    if result.median_us is None or result.speedup is None:
        return "correct (kept)" if is_kept else "correct"
    how = "timed in full (kept)" if is_kept else "timed roughly"
    return f"{us(result.median_us)}, {result.speedup:.3g}×, {how}"


def _order(result: VariantResult) -> float:
    return -(result.speedup or 0.0)
