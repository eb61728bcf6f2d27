"""The lines about variants: all of them for a person, failures in short for a model."""

from __future__ import annotations

from protocol.values import Outcome, VariantResult, Verdict
from protocol.variant_lines import brief_variant_lines, variant_lines


def result(value: int, outcome: Outcome, **more: object) -> VariantResult:
    return VariantResult(values={"N": str(value)}, verdict=outcome, **more)  # type: ignore[arg-type]


def test_failures_of_one_kind_have_one_reason() -> None:
    """Sixteen variants that are wrong in the same way cost a model one line more than one does."""
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
    assert brief_variant_lines(verdict) == [
        "variant N=3: 10 µs, 2×, timed roughly (kept)",
        "variant N=1: wrong, row 3",
        "variant N=4: crashed, signal 11",
        "likewise wrong: variants N=2; N=5",
    ]
    assert len(variant_lines(verdict)) == 5
