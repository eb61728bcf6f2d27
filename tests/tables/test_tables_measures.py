"""The arithmetic of the tables, against numbers worked out by hand."""

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
    """Who has no candidate, or can't be measured here, still counts below the line."""
    found = level_figures(
        [solved(1, 3.0), solved(2, 1.2), solved(3, 0.5), unsolved(4), unmeasured(5)]
    )
    eager = found.baseline(EAGER)

    assert found.success == pytest.approx(3 / 5)
    assert (found.solved, found.unmeasured, found.problems) == (3, 1, 5)
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


def test_what_was_never_measured_is_blank_and_not_nought() -> None:
    """No baseline, no solved problem, an unknown price: None, and a dash in the table."""
    found = level_figures([unsolved(1, usd=None), unsolved(2)])
    eager = found.baseline(EAGER)

    assert eager is not None
    assert (eager.mean, eager.median, eager.geomean) == (None, None, None)
    assert found.baseline(COMPILE) is found.baseline(MAX_AUTOTUNE) is None
    assert (found.usd, found.minutes, found.correct_rate) == (None, None, 0.0)
    text = table_text.tables_text({"stark": rows_of(unsolved(1, usd=None), unsolved(2))})
    assert "0.00×" not in text
    assert "| stark | compile      |   – |" in text


def test_a_problem_that_compile_can_not_do_is_left_out_of_its_figures() -> None:
    """It is compared with eager, and the number of problems under compile says so."""
    found = level_figures([solved(1, 2.0, 1.5), solved(2, 2.0), unsolved(3, compile_us=50.0)])
    compiled = found.baseline(COMPILE)

    assert compiled is not None
    assert (compiled.problems, compiled.solved) == (2, 1)
    assert compiled.fast == pytest.approx((1 / 2, 0.0, 0.0))


def test_rates_are_of_attempts_and_costs_of_problems() -> None:
    """Ten attempts of which eight compile, ten of which four: 60 %, 25 %, half a dollar each."""
    found = level_figures([solved(1, 2.0), unsolved(2)])
    assert (found.compile_rate, found.correct_rate) == pytest.approx((12 / 20, 5 / 20))
    assert (found.usd, found.minutes) == pytest.approx((0.5, 2.0))


def test_an_open_problem_is_not_solved_yet() -> None:
    """Its best so far is shown, but the table says that it is not finished."""
    still = make(1, state=ProblemState.UNFINISHED, eager_us=100.0, speed_eager=9.0, attempts=3)
    rows = rows_of(still, solved(2, 2.0))

    assert level_figures(rows.rows).success == pytest.approx(0.5)
    assert "stark is not finished: 1 of 2 problems" in table_text.tables_text({"stark": rows})


@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=20))
def test_averages_lie_within_and_fast_p_falls(speeds: list[float]) -> None:
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


def test_the_papers_figures_stand_beside_the_papers_problems_only() -> None:
    """`docs/method.md`: 71.4 % and 3.03× at level 1; no other problems are held against it."""
    chosen = (1, 3, 6, 18, 23, 26, 33, 36, 40, 42, 48, 54, 57, 65, 77, 82, 86, 87)
    whole = table_text.tables_text({"stark": rows_of(*(solved(number, 2.0) for number in chosen))})
    part = table_text.tables_text({"stark": rows_of(solved(1, 2.0))})
    (line,) = [line for line in whole.splitlines() if "stark, paper" in line and "71.4 %" in line]

    assert "3.03×" in line
    assert "stark, paper" not in part
    assert PAPER_ROWS[3, "team"].eager[1] == 1.11
