"""The lines about variants: all of them for a person, failures in short for a model."""

from __future__ import annotations

from msgspec.structs import replace

from protocol.values import Outcome, VariantResult, Verdict
from protocol.variant_lines import raced_line, variant_lines


def result(value: int, outcome: Outcome, **more: object) -> VariantResult:
    return VariantResult(values={"N": str(value)}, verdict=outcome, **more)  # type: ignore[arg-type]


def test_failures_of_one_kind_have_one_reason() -> None:
    """A race is one line for a model, and what the verdict says anyway is not said again."""
    verdict = Verdict(
        verdict=Outcome.CORRECT,
        variants=(
            result(1, Outcome.WRONG, reason="row 3"),
            result(2, Outcome.WRONG, reason="row 4"),
            result(3, Outcome.CORRECT, median_us=10.0, speedup=2.0),
            result(4, Outcome.CRASHED, reason="signal 11"),
            result(5, Outcome.WRONG, reason="row 5"),
        ),
        variant=2,
    )
    assert raced_line(verdict) == [
        "Variants, timed roughly: N=3 10 µs (kept, timed in full). wrong: N=1; N=2; N=5 (row 3). "
        "crashed: N=4 (signal 11)"
    ]
    failed = replace(verdict, verdict=Outcome.WRONG, reason="row 3", variants=verdict.variants[:2])
    assert raced_line(failed) == ["Variants, timed roughly: wrong: N=1; N=2"]
    assert raced_line(replace(verdict, variants=())) == []
    assert len(variant_lines(verdict)) == 5
