"""The variants of a candidate as lines of text, for a model and for a person."""

from __future__ import annotations

from protocol.values import Outcome, VariantResult, Verdict

REASON_CHARS = 120


def variant_lines(verdict: Verdict) -> list[str]:
    """Return a line for each variant, the fastest first; [] for a candidate without variants."""
    return [
        f"variant {_values(result)}: {_outcome(result)}{kept}"
        for place, result in sorted(enumerate(verdict.variants), key=lambda pair: _order(pair[1]))
        for kept in [" (kept)" if place == verdict.variant else ""]
    ]


def brief_variant_lines(verdict: Verdict) -> list[str]:
    """Return the lines for a model: of variants that failed alike, one has its reason."""
    failed: dict[Outcome, list[VariantResult]] = {}
    for result in verdict.variants:
        if result.verdict not in (None, Outcome.CORRECT):
            failed.setdefault(result.verdict, []).append(result)
    repeated = [result for alike in failed.values() for result in alike[1:]]
    kept = {f"variant {_values(result)}: {_outcome(result)}" for result in repeated}
    lines = [line for line in variant_lines(verdict) if line.removesuffix(" (kept)") not in kept]
    for outcome, alike in failed.items():
        if alike[1:]:
            lines.append(f"likewise {outcome}: variants {'; '.join(map(_values, alike[1:]))}")
    return lines


def _values(result: VariantResult) -> str:
    return ", ".join(f"{name}={value}" for name, value in result.values.items())


def _outcome(result: VariantResult) -> str:
    if result.verdict is None:
        return "the only one"
    if result.verdict is not Outcome.CORRECT:
        return f"{result.verdict}, {result.reason[:REASON_CHARS]}"
    if result.median_us is None or result.speedup is None:
        return "correct"
    return f"{result.median_us:.4g} µs, {result.speedup:.3g}×, timed roughly"


def _order(result: VariantResult) -> float:
    return -(result.speedup or 0.0)
