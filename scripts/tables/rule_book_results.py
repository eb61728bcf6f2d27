"""The rule book on whole levels: `python -m scripts.tables.rule_book_results CHECKOUT RUN...`.

The runs are of `kernelbench.py --model recipes`.  The page counts all problems of the runs' levels:
those that the rule book takes, those that were judged, and those that it leaves to PyTorch, with
its reasons.  Nothing is run.  The rows are also written as JSON, FILE with `.json` at its end;
`--join` takes such a file: its rows stay for the problems that these runs have not judged.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median

import msgspec

from actors.cli import OneLineParser, UsageError
from actors.exit_status import ExitStatus
from actors.supervisor.reporting.run_data import formatting
from protocol.atomic_file import write_atomically
from protocol.values import Value
from scripts.tables import results, run_description
from scripts.tables.markdown_table import DASH, markdown_table, times
from scripts.tables.problems import KernelBenchProblem, choose, origin_of
from scripts.tables.results_text import RunPage, TaskPage
from scripts.tables.rule_book_coverage import VARYING, refusal_of

MAX_REASON = 160
NOTES = """\
**taken**: the rule book, which reads the module's source and is not a model, writes a candidate;
PyTorch keeps matrix products and convolutions. **judged**: with a verdict of this judge;
**correct** and **faster** (the whole 95 % interval above 1): of these. **speed-up**: geometric
means, with 1× where no candidate is faster; *of all* counts every problem of the level, since that
is what a user gets without a key and with so many attempts. A *first look* is one measurement, not
confirmed in fresh processes. A dash was not measured."""


class ProblemResult(Value, frozen=True, kw_only=True, omit_defaults=False):
    """What became of one problem: a row of the page."""

    task: str
    level: int
    number: int
    result: str  # in words: how sure it is, or why there is no correct candidate
    is_correct: bool = False
    is_faster: bool = False
    eager_us: float | None = None
    us: float | None = None
    speedup: float | None = None  # against eager
    ci95: tuple[float, float] | None = None

    @property
    def gain(self) -> float:
        """What a user gets: 1 where no candidate is faster."""
        return (self.speedup or 1.0) if self.is_faster else 1.0


class JudgedRows(Value, frozen=True, kw_only=True, omit_defaults=False):
    """The rows of a page and what is said of their runs; its JSON file."""

    lines: tuple[str, ...]  # Markdown items: device, settings, commit
    rows: tuple[ProblemResult, ...]


class LevelResults(Value, frozen=True, kw_only=True):
    """One level: all its problems, and what became of those that were judged."""

    level: int
    problems: int
    refusals: dict[str, str]  # by task: why the rule book writes no candidate
    judged: tuple[ProblemResult, ...]  # in the order of their numbers

    @property
    def gains(self) -> list[float]:
        return [row.gain for row in self.judged]


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page; return the exit status."""
    parser = OneLineParser(
        prog="python -m scripts.tables.rule_book_results",
        description=__doc__.partition("\n")[0] if __doc__ else None,
    )
    parser.add_argument("root", type=Path, metavar="CHECKOUT", help="of KernelBench")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="the page")
    parser.add_argument("--commit", default="", metavar="TEXT", help="of the judge")
    parser.add_argument(
        "--note", dest="notes", action="append", default=[], metavar="TEXT", help="a line of yours"
    )
    parser.add_argument(
        "--join", type=Path, metavar="FILE", help="an earlier page's JSON: its other problems"
    )
    given = parser.parse_args(argv)
    try:
        pages, _winners = results.read_runs(given.runs)
        rows = _judged_rows(pages)
        earlier = _earlier_rows(given.join, rows)
        backend = str(pages[0].description.settings.backend)
        every = (*rows, *(earlier.rows if earlier is not None else ()))
        levels = [_level_results(given.root, number, every, backend) for number in _levels(every)]
        lines = _run_lines(pages, given.commit, given.notes)
        _write_rows(given.out.with_suffix(".json"), lines, levels)
        write_atomically(given.out, f"{page_text(lines, levels, earlier)}\n")
    except (UsageError, ValueError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return int(ExitStatus.USAGE)
    except OSError as error:
        print(f"can't use {error.filename or given.out}: {error.strerror}", file=sys.stderr)
        return int(ExitStatus.USAGE)
    print(f"{given.out}: {sum(len(one.judged) for one in levels)} problems judged")
    return 0


def _judged_rows(pages: Sequence[RunPage]) -> tuple[ProblemResult, ...]:
    """Return the judged problems of all runs; raise UsageError for two figures of one problem."""
    tasks = [task for page in pages for task in page.tasks]
    if not tasks or any(task.row.level == 0 for task in tasks):
        raise UsageError("these runs have tasks that are not problems of KernelBench")
    [(name, most)] = Counter(task.row.task for task in tasks).most_common(1)
    if most > 1:
        raise UsageError(f"{name} is in two of the runs")
    return tuple(_problem_result(task) for task in tasks if task.is_judged)


def _problem_result(task: TaskPage) -> ProblemResult:
    row = task.row
    return ProblemResult(
        task=row.task,
        level=row.level,
        number=row.problem,
        result=_result(task),
        is_correct=row.node is not None,
        is_faster=bool(task.winner),
        eager_us=row.eager_us,
        us=row.best_us,
        speedup=row.speed_eager,
        ci95=row.speed_eager_ci95,
    )


def _earlier_rows(path: Path | None, rows: Sequence[ProblemResult]) -> JudgedRows | None:
    """Return an earlier page's rows without the problems that `rows` has."""
    if path is None:
        return None
    earlier = msgspec.json.decode(path.read_bytes(), type=JudgedRows)
    known = {row.task for row in rows}
    return JudgedRows(
        lines=earlier.lines, rows=tuple(row for row in earlier.rows if row.task not in known)
    )


def _write_rows(path: Path, lines: Sequence[str], levels: Sequence[LevelResults]) -> None:
    rows = tuple(row for level in levels for row in level.judged)
    encoded = msgspec.json.encode(JudgedRows(lines=tuple(lines), rows=rows))
    write_atomically(path, f"{msgspec.json.format(encoded, indent=1).decode()}\n")


def _levels(rows: Sequence[ProblemResult]) -> list[int]:
    return sorted({row.level for row in rows})


def _level_results(
    root: Path, level: int, rows: Sequence[ProblemResult], backend: str
) -> LevelResults:
    """Return a level's results; raise UsageError for a problem that the checkout lacks."""
    problems = choose(root, [level], "all")
    judged = [row for row in rows if row.level == level]
    unknown = {row.task for row in judged} - {problem.task for problem in problems}
    if unknown:
        raise UsageError(f"--root {root} has no problem {min(unknown)}")
    return LevelResults(
        level=level,
        problems=len(problems),
        refusals=_refusals(problems, "cuda" if backend == "cuda" else "cpp"),
        judged=tuple(sorted(judged, key=lambda row: row.number)),
    )


def _refusals(problems: Sequence[KernelBenchProblem], backend: str) -> dict[str, str]:
    found = {problem.task: refusal_of(problem.source, backend) for problem in problems}
    return {task: reason for task, reason in found.items() if reason}


def _run_lines(pages: Sequence[RunPage], commit: str, notes: Sequence[str]) -> list[str]:
    """Return what is said of the runs, as Markdown items."""
    settings = pages[0].description.settings
    search = f"{formatting.search_line(settings)}, {settings.search.budget} attempts a problem"
    commands = [run_description.repeat_command(page.description.settings) for page in pages]
    lines = run_description.judging_lines(
        [page.description for page in pages], "` and `".join(commands), commit
    )
    lines.insert(1, f"- Search: {search}; no model and no key")
    return [*lines, *(f"- {note}" for note in notes)]


def page_text(
    lines: Sequence[str], levels: Sequence[LevelResults], earlier: JudgedRows | None = None
) -> str:
    """Return the page; `lines`: of these runs."""
    names = " and ".join(str(one.level) for one in levels)
    word = "level" if len(levels) == 1 else "levels"
    if earlier is not None:
        joined = f"- {len(earlier.rows)} problems are of earlier runs:"
        lines = [*lines, joined, *(f"  {line}" for line in earlier.lines)]
    parts = [
        f"# The rule book on KernelBench, {word} {names}",
        "\n".join(lines),
        _summary(levels),
        NOTES,
    ]
    for level in levels:
        parts += [f"## Level {level.level}", _table(level), _left_out(level)]
    return "\n\n".join(part for part in parts if part)


def _summary(levels: Sequence[LevelResults]) -> str:
    titles = ["level", "problems", "taken", "judged", "correct", "faster", "speed-up of the judged"]
    titles += ["of all", "median of the faster", "largest"]
    return markdown_table(titles, [_summary_row(level) for level in levels])


def _summary_row(level: LevelResults) -> list[str]:
    gains = level.gains
    faster = [row.gain for row in level.judged if row.is_faster]
    every = gains + [1.0] * (level.problems - len(gains))
    counts = [
        level.problems,
        level.problems - len(level.refusals),
        len(gains),
        sum(row.is_correct for row in level.judged),
        len(faster),
    ]
    speeds = [
        _mean(gains),
        _mean(every),
        median(faster) if faster else None,
        max(faster, default=None),
    ]
    return [str(level.level), *map(str, counts), *map(times, speeds)]


def _mean(gains: Sequence[float]) -> float | None:
    return math.exp(fmean(map(math.log, gains))) if gains else None


def _table(level: LevelResults) -> str:
    titles = ["problem", "result", "eager", "rule book", "× eager", "95 %"]
    return markdown_table(titles, [_row(row) for row in level.judged], left=2)


def _row(row: ProblemResult) -> list[str]:
    origin = origin_of(row.task)
    return [
        f"{row.number} {origin.name if origin else row.task}",
        row.result,
        formatting.duration(row.eager_us),
        formatting.duration(row.us),
        times(row.speedup),
        DASH if row.ci95 is None else f"{row.ci95[0]:.2f}–{row.ci95[1]:.2f}",
    ]


def _result(task: TaskPage) -> str:
    if task.row.node is None:
        reason = " ".join((task.row.reason or str(task.row.state)).split())
        return reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]}…"
    look = "confirmed" if task.is_confirmed else "first look"
    return look if task.winner else f"not faster, {look}"


def _left_out(level: LevelResults) -> str:
    """Return what the rule book leaves to PyTorch, and what was not judged."""
    taken = level.problems - len(level.refusals)
    waiting = taken - sum(row.task not in level.refusals for row in level.judged)
    lines = [f"{waiting} of the {taken} that it takes were not judged."] if waiting else []
    if level.refusals:
        numbers = [str(one.number) for task in level.refusals if (one := origin_of(task))]
        lines.append(f"The rule book leaves {len(numbers)} to PyTorch: {', '.join(numbers)}.")
        reasons = Counter(VARYING.sub("…", reason) for reason in level.refusals.values())
        lines += [f"- {count} × {reason}" for reason, count in reasons.most_common(8)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
