"""Folds: lines of a source that a request does not show, and the mark that stands for them.

Pure.  A fold is the body of a function.  The line of its brace is shown with a mark behind it and
stands for the whole function: who names that line names the body, too, and who writes the mark gets
the body back.  No model is asked to write a body that it did not see.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from protocol.values import Value

# Begins where a run of blanks begins, and gives none back: no time that grows with its square.
_MARK = re.compile(
    r"(?<!\s)\s*+/\*\s*+lines\s++(?P<first>\d++)\s*+[-–]\s*+(?P<last>\d++)\s*+\*/\s*+\}?\s*+$"
)
NO_FOLD = "no lines with these numbers were left out of the source that was shown"


class Fold(Value, frozen=True, kw_only=True):
    """The lines [first, last] of a source, from 1, behind the line that opens the function."""

    name: str  # of the function
    first: int
    last: int

    @property
    def mark(self) -> str:
        """What stands for the lines, at the end of the line above them."""
        return f"/* lines {self.first}-{self.last} */"


def fold_of_mark(line: str, folds: Sequence[Fold]) -> Fold | None:
    """Return the fold whose mark a line ends with."""
    found = _MARK.search(line)
    lines = (int(found["first"]), int(found["last"])) if found else None
    return next((fold for fold in folds if (fold.first, fold.last) == lines), None)


def unknown_mark(lines: Sequence[str], folds: Sequence[Fold]) -> str:
    """Return a mark of lines that are no fold; "" where there is none, or no fold at all."""
    found = (_MARK.search(line) for line in lines if folds and fold_of_mark(line, folds) is None)
    return next((one[0].strip() for one in found if one), "")


def without_mark(line: str) -> str:
    """Return a line without the mark at its end."""
    return _MARK.sub("", line)


def unfolded(lines: Sequence[str], shown: Sequence[str], folds: Sequence[Fold]) -> list[str]:
    """Return new lines with the shown source's own in place of the marks."""
    result: list[str] = []
    for line in lines:
        fold = fold_of_mark(line, folds) if folds else None
        if fold is None:
            result.append(line)
            continue
        result.append(without_mark(line))
        result += (one.rstrip("\r") for one in shown[fold.first - 1 : fold.last])
    return result


def lost_function(source: str, defined: Set[str], folds: Sequence[Fold]) -> Fold | None:
    """Return a folded function that a whole file calls, and that is not `defined` in it."""
    return next(
        (
            fold
            for fold in folds
            if fold.name not in defined and re.search(rf"\b{fold.name}\s*(?:<[^;]*>)?\(", source)
        ),
        None,
    )
