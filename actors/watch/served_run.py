"""One run as the server's tasks see it: read at most five times a second, however many pages ask.

`RunFeed` reads a file and blocks, so it is called in threads, one call at a time.  Nothing is kept
for a page except the variables of its own stream.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from actors.supervisor.reporting.feed.node_details import node_details
from actors.supervisor.reporting.feed.run_feed import RunFeed, opened_run

INTERVAL_S = 0.2  # between two reads, and between two messages to one page
QUIET_S = 10.0  # without a message; then a comment shows that the connection lives
RECONNECT_MS = 1000


class ServedRun:
    """One run and the pages that look at it."""

    def __init__(self, feed: RunFeed) -> None:
        self.feed = feed
        self._lock = asyncio.Lock()
        self._read_at = float("-inf")

    @property
    def run_dir(self) -> Path:
        """The run's folder."""
        return self.feed.run_dir

    async def refresh(self) -> None:
        """Read the run, unless that was done a moment ago."""
        async with self._lock:
            if time.monotonic() - self._read_at >= INTERVAL_S:
                await asyncio.to_thread(self.feed.refresh)
                self._read_at = time.monotonic()

    async def since(self, seq: int) -> bytes:
        """Return the run and all that changed after a number, as JSON."""
        await self.refresh()
        return (await self._changes(seq))[0]

    async def _changes(self, seq: int) -> tuple[bytes, int, str]:
        """Return the JSON, its number, and the run that it is of."""
        async with self._lock:
            return await asyncio.to_thread(self._encoded, seq)

    def _encoded(self, seq: int) -> tuple[bytes, int, str]:
        changes = self.feed.since(seq)
        return msgspec.json.encode(changes), changes.seq, changes.run.run_id

    async def node(self, task: str, number: int) -> bytes | None:
        """Return all that is known of a node, as JSON; None where there is no such attempt."""
        await self.refresh()
        best = self.feed.best(task)
        return await asyncio.to_thread(_node, self.run_dir, task, number, best)

    async def stream(self, seq: int, is_ending: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Yield server-sent events: what has changed since the last one, with its number as id."""
        yield f"retry: {RECONNECT_MS}\n\n".encode()
        version, run_id, sent_at = -1, "", time.monotonic()
        while not is_ending():
            await self.refresh()
            if version != self.feed.version:
                version = self.feed.version
                content, seq, run_id = await self._next_changes(seq, run_id)
                sent_at = time.monotonic()
                yield b"id: %d\nevent: delta\ndata: %b\n\n" % (seq, content)
            elif time.monotonic() - sent_at > QUIET_S:
                sent_at = time.monotonic()
                yield b":\n\n"
            await asyncio.sleep(INTERVAL_S)

    async def _next_changes(self, seq: int, run_id: str) -> tuple[bytes, int, str]:
        """Return the changes after `seq`; everything, when another run is in the folder now."""
        content, new_seq, new_run_id = await self._changes(seq)
        if run_id and new_run_id != run_id:
            return await self._changes(0)
        return content, new_seq, new_run_id


def _node(run_dir: Path, task: str, number: int, best: int | None) -> bytes | None:
    with opened_run(run_dir) as run:
        details = node_details(run, (task, number), best)
    return None if details is None else msgspec.json.encode(details)
