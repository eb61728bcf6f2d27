"""Many long texts that repeat each other, stored once by lines.

A search's texts are copies with changes: a child's source, a request with a window of sources, a
reply that becomes a source.  A compressor sees only the last 32 KB, so repeated lines are found
here: a text becomes runs of lines, and each line is stored where it came first.
"""

from __future__ import annotations

from collections.abc import Sequence

MIN_SINGLE = 24  # characters of a line that is taken from elsewhere without its neighbours


class TextPieces:
    """The pieces, and the texts as runs `start, count, start, count …` of pieces."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.texts: list[list[int]] = []
        self._known: dict[str, int] = {}  # text -> its place in `texts`
        self._lines: dict[str, int] = {}  # line -> a place of it in `pieces`
        self._pairs: dict[tuple[str, str], int] = {}  # two lines in a row -> the place of the first

    def add(self, text: str) -> int:
        """Store a text; return its place in `texts`."""
        known = self._known.get(text)
        if known is not None:
            return known
        self._known[text] = len(self.texts)
        self.texts.append(self._runs(text.splitlines(keepends=True)))
        return len(self.texts) - 1

    def text(self, place: int) -> str:
        """Return a stored text, as a page puts it together."""
        runs = self.texts[place]
        return "".join(
            "".join(self.pieces[start : start + count])
            for start, count in zip(runs[::2], runs[1::2], strict=True)
        )

    def _runs(self, lines: Sequence[str]) -> list[int]:
        pieces = self.pieces
        runs: list[int] = []
        end = -1  # of the run that is being made
        for line, following in zip(lines, [*lines[1:], ""][: len(lines)], strict=True):
            if 0 <= end < len(pieces) and pieces[end] == line:
                start = end
            else:
                start = self._place(line, following)
            if start == end:
                runs[-1] += 1
            else:
                runs += (start, 1)
            end = start + 1
        return runs

    def _place(self, line: str, following: str) -> int:
        """Return a place of a line, best where the same line follows; it may be a new one.

        A short line such as "}" is in many places, and two numbers take more room than the line.
        """
        known = self._pairs.get((line, following))
        if known is None and len(line) >= MIN_SINGLE:
            known = self._lines.get(line)
        return self._append(line) if known is None else known

    def _append(self, line: str) -> int:
        start = len(self.pieces)
        self.pieces.append(line)
        self._lines[line] = start
        if start:
            self._pairs.setdefault((self.pieces[start - 1], line), start - 1)
        return start
