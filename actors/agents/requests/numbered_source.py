"""Sources as compact requests show them: numbered lines, marked spans."""

from __future__ import annotations

from actors.agents.replies.anchors import lines_of


def numbered(source: str, spans: tuple[tuple[int, int], ...] = ()) -> str:
    """Return the source with a number before each line, and lines around the marked spans."""
    lines = lines_of(source)
    text: list[str] = []
    for number, line in enumerate(lines, start=1):
        for n, (first, last) in enumerate(spans, start=1):
            if first == number:
                text.append(f"--- span {n}")
            if last == number - 1 and last < first:  # a span without lines: new ones go here
                text.append(f"--- end of span {n}")
        text.append(f"{number}\t{line}")
        for n, (first, last) in enumerate(spans, start=1):
            if first <= last == number:
                text.append(f"--- end of span {n}")
    return "\n".join(text) + "\n"
