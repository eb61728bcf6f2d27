"""A Markdown table with aligned columns, so that a terminal shows it too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

DASH = "–"


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table; the first `left` columns are text, the others figures."""
    lines = [list(titles), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    widths = [max(3, *(len(line[at]) for line in lines)) for at in range(len(titles))]
    ruler = [
        "-" * width if at < left else "-" * (width - 1) + ":" for at, width in enumerate(widths)
    ]
    return "\n".join(_line(line, widths, left) for line in [lines[0], ruler, *lines[1:]])


def _line(cells: Sequence[str], widths: Sequence[int], left: int) -> str:
    padded = (
        cell.ljust(width) if at < left else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"| {' | '.join(padded)} |"


def percent(share: float | None) -> str:
    """`71.4 %`; a dash for None."""
    return DASH if share is None else f"{share * 100:.1f} %"


def times(speed: float | None) -> str:
    """`3.03×`."""
    return DASH if speed is None else f"{speed:.2f}×"


def dollars(usd: float | None) -> str:
    """`0.31`."""
    return DASH if usd is None else f"{usd:.2f}"


def minutes(duration: float | None) -> str:
    """`26.5`."""
    return DASH if duration is None else f"{duration:.1f}"
