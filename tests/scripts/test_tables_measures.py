"""The arithmetic of the tables, against numbers computed by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_samples import make, rows_of, solved, unmeasured, unsolved

from scripts.tables import table_text
from scripts.tables.paper_results import PAPER_ROWS
from scripts.tables.result_rows import ProblemState
from scripts.tables.table_metrics import COMPILE, EAGER, MAX_AUTOTUNE, level_figures


def test_success_and_fast_p_are_of_all_problems() -> None:
    """A problem without a candidate, or not measurable here, still counts in the denominator."""
    figures = level_figures(
        [solved(1, 3.0), solved(2, 1.2), solved(3, 0.5), unsolved(4), unmeasured(5)]
    )
    eager = figures.baseline(EAGER)

    assert figures.success == pytest.approx(3 / 5)
    assert (figures.solved, figures.unmeasured, figures.problems) == (3, 1, 5)
    assert eager is not None
    assert eager.fast == pytest.approx((2 / 5, 1 / 5, 1 / 5))


def test_a_speed_of_exactly_p_is_not_above_it() -> None:
    """KernelBench's rule, as its score.py has it: strictly above p."""
    eager = level_figures([solved(1, 1.0), solved(2, 1.5), solved(3, 2.0)]).baseline(EAGER)
    assert eager is not None
    assert eager.fast == pytest.approx((2 / 3, 1 / 3, 0.0))


def test_means_are_over_the_solved_and_with_the_reference_as_fallback() -> None:
    """1×, 4× and an unsolved one: geometric mean 2, median 2.5, mean 2.5, with fallback 2."""
    eager = level_figures([solved(1, 1.0), solved(2, 4.0), unsolved(3)]).baseline(EAGER)
    assert eager is not None
    assert (eager.geomean, eager.median, eager.mean) == pytest.approx((2.0, 2.5, 2.5))
    assert eager.with_fallback == pytest.approx(2.0)


def test_a_missing_figure_is_blank_and_not_zero() -> None:
    """No baseline, no solved problem, an unknown price: None, and a dash in the table."""
    figures = level_figures([unsolved(1, usd=None), unsolved(2)])
    eager = figures.baseline(EAGER)

    assert eager is not None
    assert (eager.mean, eager.median, eager.geomean) == (None, None, None)
    assert figures.baseline(COMPILE) is figures.baseline(MAX_AUTOTUNE) is None
    assert (figures.usd, figures.minutes, figures.correct_rate) == (None, None, 0.0)
    text = table_text.tables_text({"stark": rows_of(unsolved(1, usd=None), unsolved(2))})
    assert "0.00×" not in text
    assert "| stark | compile      |   – |" in text


def test_a_problem_without_a_compiled_baseline_is_left_out_of_its_figures() -> None:
    """It is compared with eager, and the number of problems under compile says so."""
    figures = level_figures([solved(1, 2.0, 1.5), solved(2, 2.0), unsolved(3, compile_us=50.0)])
    compiled = figures.baseline(COMPILE)

    assert compiled is not None
    assert (compiled.problems, compiled.solved) == (2, 1)
    assert compiled.fast == pytest.approx((1 / 2, 0.0, 0.0))


def test_rates_are_of_attempts_and_costs_of_problems() -> None:
    """Ten attempts of which eight compile, ten of which four: 60 %, 25 %, half a dollar each."""
    figures = level_figures([solved(1, 2.0), unsolved(2)])
    assert (figures.compile_rate, figures.correct_rate) == pytest.approx((12 / 20, 5 / 20))
    assert (figures.usd, figures.minutes) == pytest.approx((0.5, 2.0))


def test_an_open_problem_is_not_solved_yet() -> None:
    """Its best so far is shown, but the table says that it is not finished."""
    open_row = make(1, state=ProblemState.UNFINISHED, eager_us=100.0, speed_eager=9.0, attempts=3)
    rows = rows_of(open_row, solved(2, 2.0))

    assert level_figures(rows.rows).success == pytest.approx(0.5)
    assert "stark is not finished: 1 of 2 problems" in table_text.tables_text({"stark": rows})


@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=20))
def test_averages_are_within_the_extremes_and_fast_p_falls(speeds: list[float]) -> None:
    """Any speeds: geometric ≤ arithmetic mean, all between the extremes, fast_p falls with p."""
    rows = [solved(number, speed) for number, speed in enumerate(speeds)]
    eager = level_figures(rows).baseline(EAGER)
    assert eager is not None
    assert eager.geomean is not None
    assert eager.mean is not None
    assert min(speeds) <= eager.geomean * (1 + 1e-9)
    assert eager.geomean <= eager.mean * (1 + 1e-9)
    assert eager.mean <= max(speeds) * (1 + 1e-9)
    assert list(eager.fast) == sorted(eager.fast, reverse=True)
    assert eager.fast[0] == sum(speed > 1.0 for speed in speeds) / len(speeds)
    assert math.isclose(eager.with_fallback or 0.0, eager.mean)


def test_the_papers_figures_are_shown_for_the_papers_problems_only() -> None:
    """`docs/method.md`: 71.4 % and 3.03× at level 1; other problems are not compared with it."""
    numbers = (1, 3, 6, 18, 23, 26, 33, 36, 40, 42, 48, 54, 57, 65, 77, 82, 86, 87)
    whole = table_text.tables_text({"stark": rows_of(*(solved(number, 2.0) for number in numbers))})
    part = table_text.tables_text({"stark": rows_of(solved(1, 2.0))})
    (line,) = [line for line in whole.splitlines() if "stark, paper" in line and "71.4 %" in line]

    assert "3.03×" in line
    assert "stark, paper" not in part
    assert PAPER_ROWS[3, "team"].eager[1] == 1.11
