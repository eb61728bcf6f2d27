"""Laws of the score over a task's cases."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.cases import (
    SLOWEST_RATIO,
    CaseReference,
    CaseResult,
    combined_figures,
    reference_case_lines,
    result_case_lines,
)

ratios = st.floats(SLOWEST_RATIO, 100.0)
weights = st.floats(0.01, 10.0)
times = st.floats(0.5, 1e6)


def result(name: str, weight: float, speedup: float, us: float = 10.0) -> CaseResult:
    return CaseResult(
        name=name,
        weight=weight,
        median_us=us,
        reference_us=us * speedup,
        speedup=speedup,
        speedup_ci95=(speedup * 0.9, speedup * 1.1),
    )


@given(st.lists(st.tuples(weights, ratios, times), min_size=1, max_size=8))
def test_the_score_is_the_weighted_geometric_mean_of_the_cases(
    cases: list[tuple[float, float, float]],
) -> None:
    """It lies between the cases, its interval around it, and its two times have its ratio."""
    found = combined_figures([result(f"c{n}", *case) for n, case in enumerate(cases)])
    total = sum(weight for weight, _ratio, _us in cases)
    expected = math.exp(sum(weight * math.log(ratio) for weight, ratio, _us in cases) / total)
    assert found.speedup == pytest.approx(expected)
    assert found.speedup_ci95 is not None
    assert found.speedup_ci95[0] < expected < found.speedup_ci95[1]
    assert found.reference_us is not None
    assert found.median_us is not None
    assert found.reference_us / found.median_us == pytest.approx(expected)
    assert found.slow_case == ""


@given(st.lists(st.tuples(weights, ratios), min_size=1, max_size=5), st.floats(0.01, 0.979))
def test_a_case_slower_than_allowed_is_the_score(
    cases: list[tuple[float, float]], slow: float
) -> None:
    """Gains elsewhere never hide it: all figures are the slow case's, so it can't win."""
    results = [result(f"c{n}", *case) for n, case in enumerate(cases)]
    worst = result("slow", 0.01, slow)
    found = combined_figures([*results, worst])
    assert ("slow", slow, worst.speedup_ci95) == (
        found.slow_case,
        found.speedup,
        found.speedup_ci95,
    )
    assert (worst.median_us, worst.reference_us) == (found.median_us, found.reference_us)
    assert "this is the score" in result_case_lines([*results, worst])[-1]


def test_a_missing_figure_leaves_the_score_out() -> None:
    """A case without a time does not count as a fast one."""
    found = combined_figures([result("a", 0.5, 2.0), CaseResult(name="b", weight=0.5)])
    assert found.speedup is None
    assert found.speedup_ci95 is None


def test_agents_read_each_case_and_the_rule() -> None:
    """The lines name each case, its shapes, its weight, and that none may be slower."""
    case = CaseReference(name="long", weight=0.25, eager_us=12.5, inputs="float32[1, 2048]")
    text = "\n".join(reference_case_lines([case, case]))
    assert "long (weight 0.25): float32[1, 2048]; 12.5 µs eager" in text
    assert "0.98× of eager" in text
    assert reference_case_lines([]) == []
