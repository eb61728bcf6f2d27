"""The page inside report.html: its files, and the run's data, compressed, in the same file.

The data is what the server of `scripts/watch.py` would answer: the whole state, and the details of
the nodes.  It is base64, so no text of a candidate or a model can end the element that holds it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from actors.supervisor.page import PAGE
from actors.supervisor.page.page_files import page_order
from actors.supervisor.reporting.feed.feed_values import AttemptKey
from actors.supervisor.reporting.feed.node_details import NodeDetails, node_details
from actors.supervisor.reporting.feed.run_feed import RunFeed, opened_run
from actors.supervisor.reporting.report.text_pieces import TextPieces
from actors.supervisor.reporting.run_data.snapshot import Snapshot, TaskState
from protocol.values import Value

MAX_BYTES = 3_000_000  # of the packed data, as base64 a third more; report and page need the rest
MAX_NODES = 1_200  # with details
MIN_TEXT = 100  # characters; a shorter text stays where it is
MAX_LOG = 6_000  # characters of a log, its beginning and its end
REQUESTS_SHARE = 0.85  # of the data may be taken before requests are left out
PACK_LEVEL = 6
IDENTIFIER = "report"
NO_SCRIPT = "'none'"


class PackedSize:
    """How long a text gets when it is packed, known before all of it is there; never too short."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(1)  # fast, and longer than what is written in the end
        self.bytes = 0

    def add(self, content: bytes) -> None:
        """Count a part."""
        self.bytes += len(self._packer.compress(content))


class OwnFile(str):
    """The text of one of the page's own files: a template does not escape it."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return the text as HTML, by the protocol of jinja2's escaping."""
        return str(self)


class InlinePage(Value, frozen=True, kw_only=True):
    """What the template of the report puts into its file."""

    styles: tuple[OwnFile, ...] = ()
    scripts: tuple[OwnFile, ...] = ()
    data: str = ""  # base64 of gzip of JSON

    @property
    def policy(self) -> str:
        """The content security policy: nothing but these scripts runs, nothing is loaded."""
        hashes = " ".join(f"'sha256-{_digest(script)}'" for script in self.scripts)
        return (
            f"default-src 'none'; script-src {hashes or NO_SCRIPT};"
            " style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
        )


def inline_page(run_dir: Path, snapshot: Snapshot, folder: Path = PAGE) -> InlinePage:
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
    """Return the data of a run, with as many details as fit: the most interesting nodes first."""
    feed = RunFeed(run_dir, IDENTIFIER)
    feed.refresh()
    since = feed.since(0)
    size, packed_nodes = PackedSize(), EmbeddedNodes()
    size.add(msgspec.json.encode(since))
    keys = _in_order_of_interest(snapshot)
    for key, details in _details(run_dir, keys[:MAX_NODES]):
        packed_nodes.add(key, details, size)
        if size.bytes > MAX_BYTES:
            break
    content = {
        "since": since,
        "nodes": packed_nodes.nodes,
        "pieces": packed_nodes.pieces.pieces,
        "texts": packed_nodes.pieces.texts,
        "left_out": packed_nodes.left_out(len(keys)),
    }
    packed = gzip.compress(msgspec.json.encode(content), compresslevel=PACK_LEVEL, mtime=0)
    return base64.b64encode(packed).decode()


class EmbeddedNodes:
    """The details of nodes as JSON values, their long texts stored once."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.pieces = TextPieces()
        self._requests_left_out = 0

    def add(self, key: AttemptKey, details: NodeDetails, size: PackedSize) -> None:
        """Add a node, and its requests while there is room for them."""
        # The sources of other nodes are theirs: the page takes them from there.
        found: dict[str, Any] = {
            name: value
            for name, value in msgspec.to_builtins(details).items()
            if name not in ("parent_source", "best_source", "root_source")
        }
        pieces, texts = len(self.pieces.pieces), len(self.pieces.texts)
        found["source"] = self._piece(found["source"])
        found["log"] = self._piece(_cut(found["log"]))
        if found["plan"] is not None:
            found["plan"]["text"] = self._piece(found["plan"]["text"])
        has_room = size.bytes <= MAX_BYTES * REQUESTS_SHARE
        self._requests_left_out += bool(found["calls"]) and not has_room
        for call in found["calls"]:
            call["request"] = self._piece(call["request"]) if has_room else None
            call["reply"] = self._piece(call["reply"])
        self.nodes[f"{key[0]}/{key[1]}"] = found
        new = (found, self.pieces.pieces[pieces:], self.pieces.texts[texts:])
        size.add(msgspec.json.encode(new))

    def left_out(self, nodes: int) -> list[str]:
        """Say what is missing for a run with that number of nodes."""
        lines = []
        if nodes > len(self.nodes):
            count = nodes - len(self.nodes)
            lines.append(f"The details of {count:,} of {nodes:,} nodes are not in this file.")
        if self._requests_left_out:
            count = self._requests_left_out
            lines.append(f"The requests to the models of {count:,} nodes are not in this file.")
        return lines

    def _piece(self, text: str | None) -> object:
        if text is None or len(text) < MIN_TEXT:
            return text
        return {"$text": self.pieces.add(text)}


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


def _cut(log: str | None) -> str | None:
    if log is None or len(log) <= MAX_LOG:
        return log
    half = MAX_LOG // 2
    return f"{log[:half]}\n[{len(log) - 2 * half} more characters are in run.db]\n{log[-half:]}"


def _text(path: Path, end: str) -> OwnFile:
    """Return a file for an inline element, in which nothing ends that element."""
    text = path.read_text(encoding="utf-8")
    if end in text.lower():
        raise ValueError(f"{path.name} holds {end}: it would end its element in report.html")
    return OwnFile(text)


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
