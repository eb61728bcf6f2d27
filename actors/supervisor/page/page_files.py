"""The files of the page in `actors/supervisor/page/`: served by `watch`, and put into report.html.

`scripts.json` lists the styles and the scripts in their order.  Only the files that it names, and
`index.html`, exist for readers; a name from outside is looked up and never becomes a path.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from actors.supervisor.page import PAGE
from protocol.values import Value

INDEX = "index.html"
SCRIPTS = "scripts.json"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
MISSING_PAGE = (
    "<!doctype html><title>STARK</title><p>The files of the page are not installed; the data is at"
    " /api/runs."
)


class PageFile(Value, frozen=True, kw_only=True):
    """One file of the page."""

    content: bytes
    media_type: str


class PageOrder(Value, frozen=True, kw_only=True):
    """The content of `scripts.json`: paths below the folder, in order."""

    styles: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()


def page_order(folder: Path = PAGE) -> PageOrder:
    """Return the styles and scripts of the page; none where it is not installed."""
    path = folder / SCRIPTS
    if not path.is_file():
        return PageOrder()
    return msgspec.json.decode(path.read_bytes(), type=PageOrder)


def page_files(folder: Path = PAGE) -> dict[str, PageFile]:
    """Return all files that a browser may ask for, by name."""
    order = page_order(folder)
    names = (INDEX, *order.styles, *order.scripts)
    if not (folder / INDEX).is_file():
        return {INDEX: PageFile(content=MISSING_PAGE.encode(), media_type=MEDIA_TYPES[".html"])}
    return {
        name: PageFile(
            content=(folder / name).read_bytes(),
            media_type=MEDIA_TYPES[Path(name).suffix],
        )
        for name in names
    }
