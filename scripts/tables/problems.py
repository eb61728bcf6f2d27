"""KernelBench's problems: a checkout's levels, a choice among them, and their task names.

A problem is a file `KernelBench/levelN/NUMBER_Name.py`.  Its task is named `levelN_NUMBER_Name`:
numbers repeat from level to level, and a task's name is all that a run keeps of where it came from.
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
    """One problem as it lies in a checkout."""

    level: int
    number: int
    task: str  # its name in a run
    file: str  # "1_Square_matrix_multiplication_.py", what KernelBench calls its name
    source: str


class ProblemOrigin(Value, frozen=True, kw_only=True):
    """Where a run's task came from, read back from its name."""

    level: int
    number: int
    name: str


def origin_of(task: str) -> ProblemOrigin | None:
    """Return where a task came from; None when it is no KernelBench problem's."""
    found = TASK.fullmatch(task)
    if found is None:
        return None
    return ProblemOrigin(level=int(found[1]), number=int(found[2]), name=found[3])


def choose(root: Path, levels: Sequence[int], words: str) -> tuple[KernelBenchProblem, ...]:
    """Return the problems of `levels` that `words` names; raise UsageError with one line.

    `words`: "representative", "all", or numbers and ranges, "1,3,6-9".
    """
    twice = next((level for level in levels if levels.count(level) > 1), None)
    if twice is not None:
        raise UsageError(f"--level {twice} is given twice: name each level once")
    top = _top(root)
    return tuple(
        _read(level, number, path)
        for level in levels
        for number, path in _chosen(top, level, words).items()
    )


def _top(root: Path) -> Path:
    """Return the folder that holds level1, level2, …: the checkout's KernelBench, or `root`."""
    for top in (root / "KernelBench", root):
        if _levels(top):
            return top
    if not root.is_dir():
        raise UsageError(f"--root {root}: there is no such folder; give a checkout of KernelBench")
    raise UsageError(
        f"--root {root} is no checkout of KernelBench: expected {root / 'KernelBench' / 'level1'}"
        " with files like 1_Name.py"
    )


def _levels(top: Path) -> list[int]:
    """Return the levels that have problems."""
    if not top.is_dir():
        return []
    named = (re.fullmatch(r"level([1-9]\d*)", entry.name) for entry in top.iterdir())
    levels = sorted(int(found[1]) for found in named if found)
    return [level for level in levels if _files(top, level)]


def _files(top: Path, level: int) -> list[tuple[int, Path]]:
    """Return a level's problems by number; what is named otherwise is none."""
    folder = top / f"level{level}"
    if not folder.is_dir():
        return []
    found = ((FILE.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match and path.is_file())


def _chosen(top: Path, level: int, words: str) -> dict[int, Path]:
    files = _files(top, level)
    if not files:
        known = ", ".join(map(str, _levels(top)))
        raise UsageError(f"--level {level}: {top} has no such level; it has {known}")
    there = {number for number, _ in files}
    wanted = _wanted(level, there, words)
    missing = [number for number in wanted if number not in there]
    if missing:
        raise UsageError(
            f"--problems {words}: level {level} has no problem {_listed(missing)}; it has"
            f" {_listed(sorted(there))}"
        )
    paths: dict[int, Path] = {}
    for number, path in files:
        if number in wanted:
            if number in paths:
                raise UsageError(
                    f"level {level} has two problems {number}: {paths[number].name} and"
                    f" {path.name}; take one away"
                )
            paths[number] = path
    return {number: paths[number] for number in wanted}


def _wanted(level: int, there: Iterable[int], words: str) -> list[int]:
    if words == "all":
        return sorted(there)
    if words == "representative":
        if level not in REPRESENTATIVE:
            raise UsageError(
                f"--problems representative: KernelBench names none for level {level}; give"
                " numbers, or all"
            )
        return list(REPRESENTATIVE[level])
    return _numbers(words)


def _numbers(words: str) -> list[int]:
    """Return the numbers of "1,3,6-9", each once."""
    numbers: list[int] = []
    for part in words.split(","):
        found = re.fullmatch(r"\s*(\d{1,6})(?:\s*-\s*(\d{1,6}))?\s*", part)
        if found is None:
            raise UsageError(
                f"--problems {words!r}: expected representative, all, or numbers like 1,3,6-9"
            )
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise UsageError(f"--problems {words}: {part.strip()} runs backwards")
        numbers += range(first, last + 1)
    counted = Counter(numbers)
    twice = next((number for number in counted if counted[number] > 1), None)
    if twice is not None:
        raise UsageError(f"--problems {words}: {twice} is named twice")
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
    task = preflight.read_task(path)  # so that a mistake names the checkout's file
    return KernelBenchProblem(
        level=level,
        number=number,
        task=f"level{level}_{task.name}",
        file=path.name,
        source=task.source,
    )
