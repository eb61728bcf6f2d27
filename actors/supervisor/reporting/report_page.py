"""The page inside report.html: its files, and the run's data, compressed, in the same file.

The data is what the server of `scripts/watch.py` would answer: the whole state, and the details of
the nodes.  It is base64, so no text of a candidate or a model can end the element that holds it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from actors.supervisor.reporting.feed_rows import AttemptKey
from actors.supervisor.reporting.node_details import NodeDetails, node_details
from actors.supervisor.reporting.page_files import FOLDER, page_order
from actors.supervisor.reporting.run_feed import RunFeed, opened_run
from actors.supervisor.reporting.snapshot import Snapshot, TaskState
from actors.supervisor.reporting.text_pieces import TextPieces
from protocol.values import Value

MAX_BYTES = 4_500_000  # of the data as base64; the rest of 5 MB is the report and the page's files
MIN_TEXT = 100  # characters; a shorter text stays where it is
MAX_LOG = 6_000  # characters of a log, its beginning and its end
IDENTIFIER = "report"


class DetailLevel(Value, frozen=True, kw_only=True):
    """How much of a run is in its report."""

    nodes: int
    has_requests: bool

    def left_out(self, nodes: int) -> tuple[str, ...]:
        """Say what is missing for a run of so many nodes."""
        lines = []
        if nodes > self.nodes:
            lines.append(f"the details of {nodes - self.nodes} of {nodes} nodes are not in here")
        if not self.has_requests:
            lines.append("the requests to the models are not in here")
        return tuple(lines)


# The first level that is small enough is taken.
LEVELS = (
    DetailLevel(nodes=1_000, has_requests=True),
    DetailLevel(nodes=1_000, has_requests=False),
    DetailLevel(nodes=200, has_requests=False),
    DetailLevel(nodes=0, has_requests=False),
)


class InlinePage(Value, frozen=True, kw_only=True):
    """What the template of the report puts into its file."""

    styles: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    data: str = ""  # base64 of gzip of JSON

    @property
    def policy(self) -> str:
        """The content security policy: nothing but these scripts runs, nothing is loaded."""
        hashes = " ".join(f"'sha256-{_digest(script)}'" for script in self.scripts)
        return (
            f"default-src 'none'; script-src {hashes or chr(39) + 'none' + chr(39)};"
            " style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
        )


def inline_page(run_dir: Path, snapshot: Snapshot, folder: Path = FOLDER) -> InlinePage:
    """Return the page of a run for its report; nothing where the page is not installed."""
    order = page_order(folder)
    if not order.scripts:
        return InlinePage()
    return InlinePage(
        styles=tuple(_text(folder / name, "</style") for name in order.styles),
        scripts=tuple(_text(folder / name, "</script") for name in order.scripts),
        data=embedded_data(run_dir, snapshot),
    )


def embedded_data(run_dir: Path, snapshot: Snapshot) -> str:
    """Return the data of a run, with as many details as fit."""
    feed = RunFeed(run_dir, IDENTIFIER)
    feed.refresh()
    since = feed.since(0)
    keys = _in_order_of_interest(snapshot)
    for level in LEVELS:
        pieces = TextPieces()
        nodes = {
            f"{task}/{number}": _with_pieces(details, pieces, has_requests=level.has_requests)
            for (task, number), details in _details(run_dir, keys[: level.nodes])
        }
        content = {
            "since": since,
            "nodes": nodes,
            "pieces": pieces.pieces,
            "texts": pieces.texts,
            "left_out": level.left_out(len(keys)),
        }
        packed = gzip.compress(msgspec.json.encode(content), compresslevel=9, mtime=0)
        encoded = base64.b64encode(packed).decode()
        if len(encoded) <= MAX_BYTES:
            break
    return encoded


def _in_order_of_interest(snapshot: Snapshot) -> list[AttemptKey]:
    """Return all nodes: of each task the reference and the best's ancestors, then the fastest."""
    ranked = [
        (rank, task.name, node)
        for task in snapshot.tasks
        for rank, node in enumerate(_ranked(task))
    ]
    return [(task, node) for _, task, node in sorted(ranked)]


def _ranked(task: TaskState) -> Iterator[int]:
    parents = {node.number: node.parent for node in task.nodes}
    best = task.best or task.closest
    path: list[int] = [0] if 0 in parents else []
    at = best.number if best else None
    while at and at not in path:
        path.append(at)
        at = parents.get(at)
    yield from path
    rest = [node for node in task.nodes if node.number not in set(path)]
    rest.sort(key=lambda node: (node.score_us is None, node.score_us or 0.0, node.number))
    yield from (node.number for node in rest)


def _details(run_dir: Path, keys: Sequence[AttemptKey]) -> Iterator[tuple[AttemptKey, NodeDetails]]:
    with opened_run(run_dir) as run:
        for key in keys:
            details = node_details(run, key)
            if details is not None:
                yield key, details


def _with_pieces(details: NodeDetails, pieces: TextPieces, *, has_requests: bool) -> dict[str, Any]:
    """Return the details as JSON values, long texts replaced by their places in `pieces`."""
    # The sources of other nodes are theirs: the page takes them from there.
    found: dict[str, Any] = {
        name: value
        for name, value in msgspec.to_builtins(details).items()
        if name not in ("parent_source", "best_source", "root_source")
    }
    found["source"] = _piece(found["source"], pieces)
    found["log"] = _piece(_cut(found["log"]), pieces)
    if found["plan"] is not None:
        found["plan"]["text"] = _piece(found["plan"]["text"], pieces)
    for call in found["calls"]:
        call["request"] = _piece(call["request"], pieces) if has_requests else None
        call["reply"] = _piece(call["reply"], pieces)
    return found


def _piece(text: str | None, pieces: TextPieces) -> object:
    if text is None or len(text) < MIN_TEXT:
        return text
    return {"$text": pieces.add(text)}


def _cut(log: str | None) -> str | None:
    if log is None or len(log) <= MAX_LOG:
        return log
    half = MAX_LOG // 2
    return f"{log[:half]}\n[{len(log) - 2 * half} more characters are in run.db]\n{log[-half:]}"


def _text(path: Path, end: str) -> str:
    """Return a file for an inline element, in which nothing ends that element."""
    text = path.read_text(encoding="utf-8")
    if end in text.lower():
        raise ValueError(f"{path.name} holds {end}: it would end its element in report.html")
    return text


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
