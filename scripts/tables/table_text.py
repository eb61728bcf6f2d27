"""The tables as text: as in the paper, all figures, attempts and cost, and each problem's line."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from actors.supervisor.reporting.run_data import formatting
from scripts.tables.markdown_table import DASH, dollars, markdown_table, minutes, percent, times
from scripts.tables.paper_results import PAPER_ROWS, FastAndSpeed, PaperRow
from scripts.tables.problems import REPRESENTATIVE
from scripts.tables.result_rows import ProblemRow, ProblemState, RunRows
from scripts.tables.table_metrics import (
    COMPILE,
    EAGER,
    MAX_AUTOTUNE,
    SPEEDUP_STEPS,
    BaselineFigures,
    LevelFigures,
    level_figures,
)

MAX_WIDTH = 120  # characters of a verdict; rows.json has all
BASELINES = (EAGER, COMPILE, MAX_AUTOTUNE)

COUNTING_NOTES = """\
## How it is counted

- **success**: problems with a correct candidate, of all problems that were chosen; a problem whose
  reference can't be measured on this machine counts as not solved.
- **fast_p**: problems with a correct candidate more than p times as fast as the baseline, of all
  problems, as KernelBench counts. (The paper's words are "at least as fast"; the two differ only
  where a ratio is exactly p.)
- **speed**: the baseline's time over the candidate's, over the problems that were solved. In the
  first table it is the mean; geometric mean and median are in the second. A mean is dominated by
  its largest values.
- **mean, unsolved 1×**: over all problems; the user of an unsolved problem keeps the reference. The
  paper does not say how an unsolved problem counts in its speed.
- **eager** is measured in turn with the candidate, in fresh processes at the end. **compile** and
  **max-autotune** are torch.compile's default and max-autotune, measured once for each device and
  problem and stored; a problem that they can't compile is left out of their figures, and `n` says
  how many remain.
- **compile**, **correct**: of all attempts, those that built and imported, and those that were
  judged correct.
- **USD** is the cost of the model's calls; **minutes** are those of a problem's own leases, the
  time that it would take alone.
- A dash means that the figure was not measured. It is never 0.
"""


def tables_text(rows_by_label: Mapping[str, RunRows]) -> str:
    """Return the whole text for one strategy, or several side by side."""
    levels = sorted({level for rows in rows_by_label.values() for level in rows.levels})
    parts = [f"# KernelBench, {_levels(levels)}", _facts(rows_by_label)]
    for level in levels:
        level_rows = {label: rows.of_level(level) for label, rows in rows_by_label.items()}
        figures_by_label = {label: level_figures(rows) for label, rows in level_rows.items()}
        paper_rows = {
            label: PAPER_ROWS[level, rows.strategy]
            for label, rows in rows_by_label.items()
            if (level, rows.strategy) in PAPER_ROWS and _representative(rows.of_level(level))
        }
        parts += [
            f"## Level {level}",
            *_notes(figures_by_label),
            _as_printed(figures_by_label, paper_rows),
        ]
        parts += [_speeds(figures_by_label), _attempts(figures_by_label, paper_rows)]
        parts += [
            _problems(label, rows, len(rows_by_label) > 1) for label, rows in level_rows.items()
        ]
    return "\n\n".join([*parts, COUNTING_NOTES])


def _representative(rows: Sequence[ProblemRow]) -> bool:
    """Whether these are the paper's problems."""
    return {row.problem for row in rows} == set(REPRESENTATIVE.get(rows[0].level, ()))


def _levels(levels: Sequence[int]) -> str:
    return f"level{'s' if len(levels) > 1 else ''} {', '.join(map(str, levels))}"


def _facts(rows_by_label: Mapping[str, RunRows]) -> str:
    lines = []
    for label, rows in rows_by_label.items():
        usd = _total(rows)
        lines.append(
            f"- **{label}**: {rows.strategy}, {rows.policy}; {rows.model}; {rows.budget} attempts a"
            f" problem, seed {rows.seed}; {rows.hardware or rows.device};"
            f" {rows.run_minutes:.1f} minutes for all" + ("" if usd is None else f", {usd:.2f} USD")
        )
    if len({rows.hardware for rows in rows_by_label.values() if rows.hardware}) > 1:
        lines.append("- **These ran on different hardware: their times can't be compared.**")
    return "\n".join(lines)


def _total(rows: RunRows) -> float | None:
    prices = [row.usd for row in rows.rows]
    return None if None in prices else sum(price or 0.0 for price in prices)


def _notes(figures_by_label: Mapping[str, LevelFigures]) -> list[str]:
    """Return notes on missing results, to be read before the figures."""
    lines = []
    for label, figures in figures_by_label.items():
        if figures.unfinished:
            lines.append(
                f"**{label} is not finished: {figures.unfinished} of {figures.problems} problems"
                " are still open and count as not solved.**"
            )
        if figures.unmeasured:
            lines.append(
                f"{label}: the reference of {figures.unmeasured} of {figures.problems} problems"
                " could not be measured here; they count as not solved."
            )
    return lines


def _as_printed(
    figures_by_label: Mapping[str, LevelFigures], paper_rows: Mapping[str, PaperRow]
) -> str:
    titles = ["", "success"]
    for name in BASELINES:
        titles += [f"{name} fast₁", "speed"]
    rows = []
    for label, figures in figures_by_label.items():
        row = [label, percent(figures.success)]
        for name in BASELINES:
            against = figures.baseline(name)
            row += [percent(against.fast[0]), times(against.mean)] if against else [DASH, DASH]
        rows.append(row)
        if label in paper_rows:
            paper = paper_rows[label]
            pairs: tuple[FastAndSpeed, ...] = (paper.eager, paper.compile, paper.max_autotune)
            row = [f"{label}, paper", percent(paper.success)]
            for fast, speed in pairs:
                row += [percent(fast), times(speed)]
            rows.append(row)
    return markdown_table(titles, rows)


def _speeds(figures_by_label: Mapping[str, LevelFigures]) -> str:
    titles = ["", "against", "n", *(f"fast_{p:g}" for p in SPEEDUP_STEPS)]
    titles += ["geomean", "median", "mean", "mean, unsolved 1×"]
    rows = []
    for label, figures in figures_by_label.items():
        for name in BASELINES:
            against = figures.baseline(name)
            cells = _cells(against) if against else [DASH] * (len(titles) - 2)
            rows.append([label, name, *cells])
    return markdown_table(titles, rows, left=2)


def _cells(against: BaselineFigures) -> list[str]:
    speeds = (against.geomean, against.median, against.mean, against.with_fallback)
    return [str(against.problems), *map(percent, against.fast), *map(times, speeds)]


def _attempts(
    figures_by_label: Mapping[str, LevelFigures], paper_rows: Mapping[str, PaperRow]
) -> str:
    titles = ["", "attempts", "compile", "correct", "USD a problem", "minutes a problem"]
    rows = []
    for label, figures in figures_by_label.items():
        cost = [dollars(figures.usd), minutes(figures.minutes)]
        rates = [percent(figures.compile_rate), percent(figures.correct_rate)]
        rows.append([label, str(figures.attempts), *rates, *cost])
        paper = paper_rows.get(label)
        if paper is not None and paper.compile_rate is not None:
            rates = [percent(paper.compile_rate), percent(paper.correct_rate)]
            rows.append([f"{label}, paper", DASH, *rates, DASH, DASH])
    return markdown_table(titles, rows)


def _problems(label: str, rows: Sequence[ProblemRow], several: bool) -> str:
    titles = ["problem", "verdict", "eager", "95 %", "compile", "max-autotune", "time"]
    titles += ["correct/compiled/all", "USD", "minutes"]
    lines = [
        [
            f"{row.problem} {row.name.strip('_')}",
            _verdict(row),
            times(row.speed_eager),
            _interval(row.speed_eager_ci95),
            times(row.speed_compile),
            times(row.speed_max_autotune),
            formatting.duration(row.best_us),
            f"{row.correct}/{row.compiled}/{row.attempts}",
            dollars(row.usd),
            minutes(row.minutes),
        ]
        for row in rows
    ]
    text = markdown_table(titles, lines, left=2)
    return f"### {label}\n\n{text}" if several else text


def _verdict(row: ProblemRow) -> str:
    if row.state is ProblemState.SOLVED:
        return str(row.state)
    text = f"{row.state}: {row.reason}" if row.reason else str(row.state)
    return textwrap.shorten(text, MAX_WIDTH, placeholder="…")


def _interval(ci95: tuple[float, float] | None) -> str:
    return DASH if ci95 is None else f"{ci95[0]:.2f}–{ci95[1]:.2f}"
