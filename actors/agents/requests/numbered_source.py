"""Sources as compact requests show them: numbered lines, marked spans.

Blank lines are left out, and docstrings of a task's module: the numbers keep each line's place.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Sequence

from actors.agents.replies.anchors import lines_of
from actors.agents.replies.folds import Fold


def numbered(
    source: str,
    spans: tuple[tuple[int, int], ...] = (),
    left_out: Container[int] = (),
    folds: Sequence[Fold] = (),
) -> str:
    """Return the source with a number before each line, and lines around the marked spans.

    `left_out`: numbers of lines that are not shown; of `folds` a mark is shown.
    """
    lines = lines_of(source)
    marks = {fold.first - 1: f" {fold.mark}" for fold in folds}
    hidden = {number for fold in folds for number in range(fold.first, fold.last + 1)}
    text: list[str] = []
    for number, line in enumerate(lines, start=1):
        for n, (first, last) in enumerate(spans, start=1):
            if first == number:
                text.append(f"--- span {n}")
            if last == number - 1 and last < first:  # a span without lines: new ones go here
                text.append(f"--- end of span {n}")
        if line.strip() and number not in left_out and number not in hidden:
            text.append(f"{number}\t{line}{marks.get(number, '')}")
        for n, (first, last) in enumerate(spans, start=1):
            if first <= last == number:
                text.append(f"--- end of span {n}")
    return "\n".join(text) + "\n"


def docstring_lines(source: str) -> frozenset[int]:
    """Return the numbers of the lines of docstrings, of bodies that have more than that."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return frozenset()
    numbers: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = node.body[0] if len(node.body) > 1 else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                numbers.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return frozenset(numbers)
