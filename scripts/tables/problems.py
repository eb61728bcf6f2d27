"""KernelBench's problems: a checkout's levels, a choice among them, and their task names.

A problem is a file `KernelBench/levelN/NUMBER_Name.py`.  Its task is named `levelN_NUMBER_Name`:
numbers repeat from level to level, and a run stores only a task's name of its origin.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from actors.cli import UsageError
from actors.supervisor.cli import preflight
from protocol.values import Value

# KernelBench's own representative subset: Dataset.get_representative_subset().
REPRESENTATIVE = {
    1: (1, 3, 6, 18, 23, 26, 33, 36, 40, 42, 48, 54, 57, 65, 77, 82, 86, 87),
    2: (1, 2, 8, 18, 23, 28, 33, 43),
    3: (1, 5, 8, 11, 20, 21, 33, 38, 43),
}
FILE = re.compile(r"(\d+)_.+\.py")
TASK = re.compile(r"level(\d+)_(\d+)_(.+)")


class KernelBenchProblem(Value, frozen=True, kw_only=True):
    """One problem of a checkout."""

    level: int
    number: int
    task: str  # its name in a run
    file: str  # "1_Square_matrix_multiplication_.py", KernelBench's own name of it
    source: str


class ProblemOrigin(Value, frozen=True, kw_only=True):
    """The origin of a run's task, read from its name."""

    level: int
    number: int
    name: str


def origin_of(task: str) -> ProblemOrigin | None:
    """Return a task's origin; None for a task that is not a KernelBench problem."""
    parts = TASK.fullmatch(task)
    if parts is None:
        return None
    return ProblemOrigin(level=int(parts[1]), number=int(parts[2]), name=parts[3])


def choose(root: Path, levels: Sequence[int], selection: str) -> tuple[KernelBenchProblem, ...]:
    """Return the problems of `levels` that `selection` names; raise UsageError with one line.

    `selection`: "representative", "all", or numbers and ranges, "1,3,6-9".
    """
    repeated = next((level for level in levels if levels.count(level) > 1), None)
    if repeated is not None:
        raise UsageError(f"--level {repeated} is given twice: name each level once")
    top = _top(root)
    return tuple(
        _read(level, number, path)
        for level in levels
        for number, path in _selected(top, level, selection).items()
    )


def _top(root: Path) -> Path:
    """Return the folder that holds level1, level2, …: the checkout's KernelBench, or `root`."""
    for top in (root / "KernelBench", root):
        if _levels(top):
            return top
    if not root.is_dir():
        raise UsageError(
            f"--root {root}: the folder does not exist; give a checkout of KernelBench"
        )
    raise UsageError(
        f"--root {root} is not a checkout of KernelBench: expected"
        f" {root / 'KernelBench' / 'level1'} with files like 1_Name.py"
    )


def _levels(top: Path) -> list[int]:
    """Return the levels that have problems."""
    if not top.is_dir():
        return []
    matches = (re.fullmatch(r"level([1-9]\d*)", entry.name) for entry in top.iterdir())
    levels = sorted(int(match[1]) for match in matches if match)
    return [level for level in levels if _files(top, level)]


def _files(top: Path, level: int) -> list[tuple[int, Path]]:
    """Return a level's problems by number; files with other names are ignored."""
    folder = top / f"level{level}"
    if not folder.is_dir():
        return []
    matches = ((FILE.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in matches if match and path.is_file())


def _selected(top: Path, level: int, selection: str) -> dict[int, Path]:
    files = _files(top, level)
    if not files:
        known = ", ".join(map(str, _levels(top)))
        raise UsageError(f"--level {level}: {top} has no such level; it has {known}")
    existing = {number for number, _ in files}
    wanted = _wanted(level, existing, selection)
    missing = [number for number in wanted if number not in existing]
    if missing:
        raise UsageError(
            f"--problems {selection}: level {level} has no problem {_listed(missing)}; it has"
            f" {_listed(sorted(existing))}"
        )
    paths: dict[int, Path] = {}
    for number, path in files:
        if number in wanted:
            if number in paths:
                raise UsageError(
                    f"level {level} has two problems {number}: {paths[number].name} and"
                    f" {path.name}; remove one"
                )
            paths[number] = path
    return {number: paths[number] for number in wanted}


def _wanted(level: int, existing: Iterable[int], selection: str) -> list[int]:
    if selection == "all":
        return sorted(existing)
    if selection == "representative":
        if level not in REPRESENTATIVE:
            raise UsageError(
                f"--problems representative: KernelBench names none for level {level}; give"
                " numbers, or all"
            )
        return list(REPRESENTATIVE[level])
    return _numbers(selection)


def _numbers(selection: str) -> list[int]:
    """Return the numbers of "1,3,6-9", each once."""
    numbers: list[int] = []
    for part in selection.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:\s*-\s*(\d{1,6}))?\s*", part)
        if match is None:
            raise UsageError(
                f"--problems {selection!r}: expected representative, all, or numbers like 1,3,6-9"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(f"--problems {selection}: {part.strip()} runs backwards")
        numbers += range(first, last + 1)
    counted = Counter(numbers)
    repeated = next((number for number in counted if counted[number] > 1), None)
    if repeated is not None:
        raise UsageError(f"--problems {selection}: {repeated} is named twice")
    return numbers


def _listed(numbers: Sequence[int]) -> str:
    """`1–18, 20, 23`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("–".join(map(str, run)) for run in runs)


def _read(level: int, number: int, path: Path) -> KernelBenchProblem:
    task = preflight.read_task(path)  # its errors name the checkout's file
    return KernelBenchProblem(
        level=level,
        number=number,
        task=f"level{level}_{task.name}",
        file=path.name,
        source=task.source,
    )
