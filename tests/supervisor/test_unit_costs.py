"""Dollars for an attempt and for each percent of time saved."""

from __future__ import annotations

import msgspec
import pytest
from supervisor_sample import correct

from actors.supervisor.reporting.report import report_tables
from actors.supervisor.reporting.run_data.snapshot import (
    AttemptUnderWay,
    NodeView,
    Spend,
    TaskState,
)
from actors.supervisor.reporting.run_data.unit_costs import cost_line, spent_line, usd_per_percent


def state(usd: float | None, *median_us: float) -> TaskState:
    """Return a task with attempts of these times against 1000 µs."""
    nodes = tuple(
        NodeView(
            task="t", number=number, parent=0, advice="", verdict=correct(us), score_us=us, at=1.0
        )
        for number, us in enumerate(median_us, start=1)
    )
    return TaskState(name="t", budget=9, status="measured", nodes=nodes, spend=Spend(usd=usd))


def test_a_percent_is_one_of_the_references_time() -> None:
    """By hand: 4 × as fast saves 75 %; what is not faster, or has no price, has no figure."""
    assert usd_per_percent(1.5, 4.0) == 0.02
    assert usd_per_percent(1.5, 1.0) is usd_per_percent(None, 4.0) is None


def test_the_terminal_and_the_report_show_both() -> None:
    """Two attempts for 1.50 USD, the better one 4 × as fast; saved percents of tasks are added."""
    task = state(1.5, 500.0, 250.0)
    assert cost_line([task]) == "0.7500 USD an attempt, 0.0200 USD for 1 % of a task's time"
    assert "; 0.7500 USD an attempt" in spent_line([task])
    figures = dict(report_tables.key_figures(task))
    assert figures["an attempt"] == "0.7500 USD"
    assert figures["for 1 % of the time"] == "0.0200 USD"
    others = [state(0.4, 800.0), state(0.0)]  # 20 % saved, and no attempt
    assert "0.0200 USD for 1 %" in cost_line([task, *others])


@pytest.mark.parametrize(("calls", "text"), [(0, "0.7500"), (1, "0.5000")])
def test_an_attempt_that_waits_for_its_first_agent_has_cost_nothing(calls: int, text: str) -> None:
    """Between phases each task has some: they made an attempt look half as dear."""
    waiting = AttemptUnderWay(number=3, parent=1, state="solve", calls=calls)
    task = msgspec.structs.replace(state(1.5, 500.0, 250.0), under_way=(waiting,))
    assert f"{text} USD an attempt" in cost_line([task])
    assert dict(report_tables.key_figures(task))["an attempt"] == f"{text} USD"


@pytest.mark.parametrize("usd", [0.0, None])
def test_what_costs_nothing_or_has_no_price_has_no_such_line(usd: float | None) -> None:
    """The rule book is free, and an unknown price is not zero."""
    assert cost_line([state(usd, 500.0)]) == ""
    assert "an attempt" not in dict(report_tables.key_figures(state(usd, 500.0)))
