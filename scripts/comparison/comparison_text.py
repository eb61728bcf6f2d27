"""A comparison as Markdown: the variations, then each task."""

from __future__ import annotations

from collections.abc import Mapping

from scripts.comparison.comparison_figures import (
    Estimate,
    SeedRuns,
    VariationFigures,
    task_gain,
    variation_figures,
)
from scripts.tables.markdown_table import DASH, dollars, markdown_table, minutes, percent, times

NOTES = """\
**gain**: the geometric mean over tasks of what a user gets: the winner's speed-up against eager, or
1× where no candidate is faster with its whole interval. **95 %**: over the seeds (Student's t);
tasks are not a sample of other tasks. **against the first**: the ratio of gains, seed by seed.
**correct**: of all attempts. **USD**, **minutes**: a task; minutes of its own leases. **USD for
1 %**: of the tasks' time that is saved. A dash was not measured."""


def comparison_text(runs_by_label: Mapping[str, SeedRuns]) -> str:
    """Return the table of all variations that have begun."""
    begun = {label: runs for label, runs in runs_by_label.items() if runs}
    if not begun:
        return "nothing has begun"
    first = next(iter(begun.values()))
    figures = {label: variation_figures(runs, first) for label, runs in begun.items()}
    facts = next(iter(first.values()))
    head = (
        f"# Comparison: {figures[next(iter(figures))].tasks} tasks, {facts.budget} attempts each, "
        f"on {facts.hardware or facts.device}, {facts.model}"
    )
    return "\n\n".join([head, *_open(figures), _variations(figures), _tasks(begun), NOTES])


def _open(figures: Mapping[str, VariationFigures]) -> list[str]:
    lines = [
        f"**{label} is not finished: {one.unfinished} tasks are open; they count as they are now.**"
        for label, one in figures.items()
        if one.unfinished
    ]
    return ["\n".join(lines)] if lines else []


def _variations(figures: Mapping[str, VariationFigures]) -> str:
    titles = ["", "seeds", "gain", "95 %", "against the first", "95 %", "solved", "faster"]
    titles += ["correct", "USD", "minutes", "USD for 1 %"]
    rows = [
        [
            label,
            str(one.runs),
            *_cells(one.gain),
            *_cells(one.against_first),
            percent(one.success),
            percent(one.fast),
            percent(one.correct_rate),
            dollars(one.usd),
            minutes(one.minutes),
            DASH if one.usd_per_percent is None else f"{one.usd_per_percent:.4f}",
        ]
        for label, one in figures.items()
    ]
    return markdown_table(titles, rows)


def _tasks(runs_by_label: Mapping[str, SeedRuns]) -> str:
    """Return each task's median gain over the seeds, and the lowest and highest."""
    first = next(iter(next(iter(runs_by_label.values())).values()))
    rows = []
    for row in first.rows:
        cells = []
        for runs in runs_by_label.values():
            low, middle, high = task_gain(runs, row.task)
            cells.append(times(middle) if low == high else f"{middle:.2f}× ({low:.2f}–{high:.2f})")
        rows.append([row.task, *cells])
    return markdown_table(["gain by task", *runs_by_label], rows)


def _cells(found: Estimate | None) -> list[str]:
    if found is None:
        return [DASH, DASH]
    low, high = found.interval or (None, None)
    return [times(found.value), DASH if low is None else f"{low:.2f}–{high:.2f}"]
