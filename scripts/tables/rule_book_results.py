"""The rule book on whole levels: `python -m scripts.tables.rule_book_results CHECKOUT RUN...`.

The runs are of `kernelbench.py --model recipes`.  The page counts all problems of the runs' levels:
those that the rule book takes, those that were judged, and those that it leaves to PyTorch, with
its reasons.  Nothing is run.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median

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


class LevelResults(Value, frozen=True, kw_only=True):
    """One level: all its problems, and what became of those that were judged."""

    level: int
    problems: int
    refusals: dict[str, str]  # by task: why the rule book writes no candidate
    tasks: tuple[TaskPage, ...]  # of the runs, in the order of their numbers

    @property
    def judged(self) -> list[TaskPage]:
        return [task for task in self.tasks if task.is_judged]

    @property
    def gains(self) -> list[float]:
        """What a user gets of each judged problem."""
        return [(task.row.speed_eager or 1.0) if task.winner else 1.0 for task in self.judged]


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
    given = parser.parse_args(argv)
    try:
        pages, _winners = results.read_runs(given.runs)
        levels = [_level_results(given.root, number, pages) for number in _levels(pages)]
        text = page_text(pages, levels, given.commit, given.notes)
        write_atomically(given.out, f"{text}\n")
    except (UsageError, ValueError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return int(ExitStatus.USAGE)
    except OSError as error:
        print(f"can't use {error.filename or given.out}: {error.strerror}", file=sys.stderr)
        return int(ExitStatus.USAGE)
    print(f"{given.out}: {sum(len(one.judged) for one in levels)} problems judged")
    return 0


def _levels(pages: Sequence[RunPage]) -> list[int]:
    levels = {task.row.level for page in pages for task in page.tasks}
    if not levels or 0 in levels:
        raise UsageError("these runs have tasks that are not problems of KernelBench")
    return sorted(levels)


def _level_results(root: Path, level: int, pages: Sequence[RunPage]) -> LevelResults:
    """Return a level's results; raise UsageError for runs that say two things of a problem."""
    problems = choose(root, [level], "all")
    tasks = [task for page in pages for task in page.tasks if task.row.level == level]
    twice = Counter(task.row.task for task in tasks)
    if max(twice.values(), default=0) > 1:
        raise UsageError(f"{twice.most_common(1)[0][0]} is in two of the runs")
    unknown = {task.row.task for task in tasks} - {problem.task for problem in problems}
    if unknown:
        raise UsageError(f"--root {root} has no problem {min(unknown)}")
    backend = pages[0].description.settings.backend
    return LevelResults(
        level=level,
        problems=len(problems),
        refusals=_refusals(problems, "cuda" if backend == "cuda" else "cpp"),
        tasks=tuple(sorted(tasks, key=lambda task: task.row.problem)),
    )


def _refusals(problems: Sequence[KernelBenchProblem], backend: str) -> dict[str, str]:
    found = {problem.task: refusal_of(problem.source, backend) for problem in problems}
    return {task: reason for task, reason in found.items() if reason}


def page_text(
    pages: Sequence[RunPage], levels: Sequence[LevelResults], commit: str, notes: Sequence[str]
) -> str:
    """Return the page."""
    names = " and ".join(str(one.level) for one in levels)
    word = "level" if len(levels) == 1 else "levels"
    settings = pages[0].description.settings
    search = f"{formatting.search_line(settings)}, {settings.search.budget} attempts a problem"
    commands = [run_description.repeat_command(page.description.settings) for page in pages]
    lines = run_description.judging_lines(
        [page.description for page in pages], "` and `".join(commands), commit
    )
    lines.insert(1, f"- Search: {search}; no model and no key")
    parts = [
        f"# The rule book on KernelBench, {word} {names}",
        "\n".join([*lines, *(f"- {note}" for note in notes)]),
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
    faster = [gain for task, gain in zip(level.judged, gains, strict=True) if task.winner]
    every = gains + [1.0] * (level.problems - len(gains))
    counts = [
        level.problems,
        level.problems - len(level.refusals),
        len(gains),
        sum(task.row.node is not None for task in level.judged),
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
    return markdown_table(titles, [_row(task) for task in level.judged], left=2)


def _row(task: TaskPage) -> list[str]:
    row = task.row
    low, high = row.speed_eager_ci95 or (None, None)
    origin = origin_of(row.task)
    return [
        f"{row.problem} {origin.name if origin else row.task}",
        _result(task),
        formatting.duration(row.eager_us),
        formatting.duration(row.best_us),
        times(row.speed_eager),
        DASH if low is None else f"{low:.2f}–{high:.2f}",
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
    waiting = taken - len([task for task in level.judged if task.row.task not in level.refusals])
    lines = [f"{waiting} of the {taken} that it takes were not judged."] if waiting else []
    if level.refusals:
        numbers = [str(one.number) for task in level.refusals if (one := origin_of(task))]
        lines.append(f"The rule book leaves {len(numbers)} to PyTorch: {', '.join(numbers)}.")
        reasons = Counter(VARYING.sub("…", reason) for reason in level.refusals.values())
        lines += [f"- {count} × {reason}" for reason, count in reasons.most_common(8)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
