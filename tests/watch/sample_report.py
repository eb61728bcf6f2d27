"""A report.html of a made-up run, put together as the page's README says."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

from page_sample import TASK, PageSample

from actors.supervisor.page import PAGE

LONG = 200  # characters of a text that is stored once, in pieces


class Texts:
    """Long texts as pairs of first piece and number of pieces."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.texts: list[list[int]] = []
        self.known: dict[str, int] = {}

    def packed(self, value: Any) -> Any:
        """Return a value with a reference in place of each long text."""
        if isinstance(value, dict):
            return {name: self.packed(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self.packed(part) for part in value]
        if not isinstance(value, str) or len(value) < LONG:
            return value
        if value not in self.known:
            lines = value.splitlines(keepends=True)
            self.known[value] = len(self.texts)
            self.texts.append([len(self.pieces), len(lines)])
            self.pieces.extend(lines)
        return {"$text": self.known[value]}


def embedded(sample: PageSample) -> str:
    """Return a run as report.html carries it."""
    texts = Texts()
    nodes = {}
    for number in sample.nodes:
        details = sample.node(number)
        for name in ("parent_source", "best_source", "root_source"):
            details.pop(name, None)
        nodes[f"{sample.task['name']}/{number}"] = texts.packed(details)
    whole = {"since": sample.since(0), "nodes": nodes, "pieces": texts.pieces, "texts": texts.texts}
    return base64.b64encode(gzip.compress(json.dumps(whole).encode())).decode()


def report_page(sample: PageSample) -> str:
    """Return the whole file, with a short static part."""
    order = json.loads((PAGE / "scripts.json").read_text(encoding="utf-8"))
    styles = "\n".join(content(name) for name in order["styles"])
    scripts = "\n".join(f"<script>{content(name)}</script>" for name in order["scripts"])
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>report</title><style>{styles}</style>
</head><body><div id="app" class="stark"></div>
<main class="report"><h1>{TASK}</h1><p>The static report.</p></main>
<script type="application/octet-stream" id="data">{embedded(sample)}</script>
{scripts}</body></html>"""


def content(name: str) -> str:
    """Return a file of the page."""
    return (PAGE / name).read_text(encoding="utf-8")
