"""The winners of a results page: the sources beside it, and the figures in the comment above each.

`results.py` writes these files, and `confirm_results.py` reads them to have them judged again.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from pathlib import Path

from actors.cli import UsageError
from actors.supervisor.reporting.run_data import formatting
from actors.supervisor.reporting.run_data.snapshot import TaskState
from protocol.values import Value
from scripts.tables.problems import origin_of

FIGURES = re.compile(
    r"# \S+ \S+ a call; eager PyTorch: \S+ \S+, (?P<speedup>[\d.]+)×"
    r"(?: \((?P<low>[\d.]+)–(?P<high>[\d.]+)\))? \((?P<label>[a-z ]+)\), on (?P<hardware>.+)\.\n"
)


class PublishedFigures(Value, frozen=True, kw_only=True, omit_defaults=False):
    """What the page says of a winner."""

    speedup: float
    low: float | None  # the 95 % interval
    high: float | None
    label: str  # "first look" or "confirmed"
    hardware: str


class PublishedWinner(Value, frozen=True, kw_only=True):
    """One file of a results folder."""

    task: str
    source: str  # the candidate alone, as its model wrote it
    figures: PublishedFigures | None  # None: the file is without the comment


def winner_text(state: TaskState, source: str, model: str, hardware: str) -> str:
    """Return a winner's source under the comment; "" for a task without a winner."""
    best = state.best
    if best is None:
        return ""
    lines = [
        f"{state.name}: the candidate of attempt {best.number}, as its model wrote it ({model}).",
        f"{formatting.duration(state.shown_us(best))} a call; eager PyTorch: "
        f"{formatting.duration(state.eager_us(best))}, {formatting.speedup(best.verdict)} "
        f"({formatting.measurement_label(best)}), on {hardware}.",
    ]
    header = "".join(f"# {' '.join(line.split())}\n" for line in lines)
    return f"{header}\n{source}"


def read_winner(path: Path) -> PublishedWinner:
    """Return the winner in one file; a file without the comment is all source."""
    text = path.read_text(encoding="utf-8")
    first, _, rest = text.partition("\n")
    match = FIGURES.match(rest) if first.startswith(f"# {path.stem}: ") else None
    if match is None:
        return PublishedWinner(task=path.stem, source=text, figures=None)
    low, high = match["low"], match["high"]
    figures = PublishedFigures(
        speedup=float(match["speedup"]),
        low=float(low) if low else None,
        high=float(high) if high else None,
        label=match["label"],
        hardware=match["hardware"],
    )
    source = rest[match.end() :].removeprefix("\n")
    return PublishedWinner(task=path.stem, source=source, figures=figures)


def read_winners(folder: Path, only: Sequence[str] = ()) -> list[PublishedWinner]:
    """Return a folder's winners, problems of KernelBench by level and number.

    `only`: names, or patterns as a shell has them; each has to name one.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder of published winners")
    found = {path.stem: path for path in folder.glob("*.py")}
    if not found:
        raise UsageError(f"{folder} has no winners: expected files like level1_40_LayerNorm.py")
    for pattern in only:
        if not fnmatch.filter(found, pattern):
            raise UsageError(f"--only {pattern}: {folder} has no such winner")
    chosen = [name for name in found if not only or any(fnmatch.fnmatch(name, one) for one in only)]
    return [read_winner(found[name]) for name in sorted(chosen, key=_place)]


def _place(name: str) -> tuple[int, int, str]:
    origin = origin_of(name)
    return (origin.level, origin.number, name) if origin else (0, 0, name)
