"""A comparison as Markdown: the variations, then each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from actors.supervisor.reporting.run_data import formatting
from actors.supervisor.reporting.run_data.formatting import interval
from scripts.comparison.comparison_figures import (
    Estimate,
    SeedRuns,
    VariationFigures,
    comparable,
    gain_of,
    task_rows,
    variation_figures,
)
from scripts.tables.markdown_table import DASH, dollars, markdown_table, minutes, percent, times
from scripts.tables.result_rows import ProblemRow

NOTES = """\
**gain**: the geometric mean over tasks of what a user gets: the winner's speed-up against eager, or
1× where no candidate is faster with its whole interval. **95 %**: over the seeds (Student's t; two
seeds give a very wide one); tasks are not a sample of other tasks. **against the first**: the ratio
of gains, seed by seed. **better : worse**: tasks of seeds with a gain 2 % larger and smaller than
the first's. **solved**: tasks with a correct candidate. **attempts**: judged, of those asked for;
**correct**: of these. **USD**, **minutes**: a task; minutes of its own leases, waiting for answers
included. **USD for 1 %**: of the tasks' time that is saved. A dash was not measured."""


def comparison_text(runs_by_label: Mapping[str, SeedRuns], description: Sequence[str] = ()) -> str:
    """Return the table of all variations that have begun; `description`: of their runs."""
    begun = {label: runs for label, runs in runs_by_label.items() if runs}
    if not begun:
        return "nothing has begun"
    counted = comparable(begun)
    first = next(iter(counted.values()))
    figures = {
        label: variation_figures(runs, counted[label], first) for label, runs in begun.items()
    }
    facts = next(iter(first.values()))
    every = [run for runs in begun.values() for run in runs.values()]
    budgets = sorted({run.budget for run in every})
    devices = dict.fromkeys(run.hardware or run.device for run in every)
    head = (
        f"# Comparison: {formatting.counted(figures[next(iter(figures))].tasks, 'task')}, "
        f"{' or '.join(map(str, budgets))} attempt{'' if budgets == [1] else 's'} each,"
        f" on {' or '.join(devices)}, {facts.model}"
    )
    told = ["\n".join(description)] if description else []
    missing = [label for label, runs in runs_by_label.items() if not runs]
    told += [f"**Not begun: {'; '.join(missing)}.**"] if missing else []
    return "\n\n".join(
        [head, *told, *_open(figures, missing), _variations(figures), _tasks(begun, counted), NOTES]
    )


def _open(figures: Mapping[str, VariationFigures], missing: Sequence[str]) -> list[str]:
    """Return what is missing of runs that are not finished; [] where none is."""
    parts = []
    for label, one in figures.items():
        if one.unfinished:
            part = f"{label} has {one.attempts} of {one.asked} attempts"
            part += ", its winners are not confirmed" if one.attempts == one.asked else ""
            part += f", {one.left_out} of {one.runs * one.tasks} tasks left out" * (
                one.left_out > 0
            )
            parts.append(part)
    if not parts:
        return []
    rule = "a task of a seed counts as it is now, where every variation of the seed has a verdict"
    judged = not missing and all(one.attempts == one.asked for one in figures.values())
    kind = "from first looks in part" if judged else "not of equal budgets"
    rule = f"gains are {kind}, and {rule}"
    return [f"**Not finished: {'; '.join(parts)}. Until then {rule}.**"]


def _variations(figures: Mapping[str, VariationFigures]) -> str:
    titles = ["", "seeds", "gain", "95 %", "against the first", "95 %", "better : worse", "solved"]
    titles += ["faster", "attempts", "correct", "USD", "minutes", "USD for 1 %"]
    rows = [
        [
            label,
            str(one.runs),
            *_cells(one.gain),
            *_cells(one.against_first),
            DASH if one.pairs is None else f"{one.pairs[0]} : {one.pairs[1]}",
            percent(one.success),
            percent(one.fast),
            f"{one.attempts}/{one.asked}",
            percent(one.correct_rate),
            dollars(one.usd),
            minutes(one.minutes),
            DASH if one.usd_per_percent is None else f"{one.usd_per_percent:.4f}",
        ]
        for label, one in figures.items()
    ]
    return markdown_table(titles, rows)


def _tasks(begun: Mapping[str, SeedRuns], counted: Mapping[str, SeedRuns]) -> str:
    """Return each task's median gain over the seeds, and the lowest and highest."""
    first = next(iter(next(iter(begun.values())).values()))
    rows = [
        [row.task, *(_task_gain(task_rows(runs, row.task)) for runs in counted.values())]
        for row in first.rows
    ]
    return markdown_table(["gain by task", *counted], rows)


def _task_gain(rows: Sequence[ProblemRow]) -> str:
    """Return a task's gain, and in how many seeds it has a correct candidate where not in all."""
    if not rows:
        return DASH
    correct = sum(row.correct > 0 for row in rows)
    if not correct:
        return "none correct"
    gains = [gain_of(row) for row in rows]
    text = times(median(gains))
    if min(gains) != max(gains):
        text += f" ({min(gains):.2f}–{max(gains):.2f})"
    return text if correct == len(rows) else f"{text}, correct in {correct} of {len(rows)}"


def _cells(found: Estimate | None) -> list[str]:
    if found is None:
        return [DASH, DASH]
    if found.interval is None:
        return [times(found.value), DASH]
    low, high = found.interval
    return [times(found.value), interval(low, high)]
