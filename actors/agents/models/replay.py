"""A model that answers from a stored run: the calls in its `run.db`, read and never written.

A reply belongs to the request that it was given to, the whole rendered text.  Figures that a
machine measured (times, logs, profiles) may differ, and nothing else: what was never asked is
never answered, since a made-up run helps nobody.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from actors.agents.models.model import Denied, TooLong
from actors.agents.request import Request
from actors.agents.unmeasured import first_difference, unmeasured
from protocol import truth
from protocol.values import Call, Value, request_key

FILE_NAME = "run.db"
SHOWN = 60  # characters of a line in which two requests differ


class Stored(Value, frozen=True, kw_only=True):
    """Where one reply lies, and for which work it was given."""

    row: int
    work: str


class ReplayModel:
    """Answers each request as it was answered in a stored run, at no cost.

    Of several replies to one request the one that was given to this very work comes first, then
    those that were not given yet, in stored order.  None is given twice by one process.
    """

    at_once = 1

    def __init__(self, name: str, run: Path) -> None:
        self.name = name
        self._run = run
        self._path = run / FILE_NAME
        self._lock = threading.Lock()
        self._given: set[int] = set()
        self._same: dict[str, list[Stored]] = {}
        self._alike: dict[str, list[Stored]] = {}  # but for what was measured
        for stored, request in self._requests():
            self._same.setdefault(request_key(request), []).append(stored)
            self._alike.setdefault(request_key(unmeasured(request)), []).append(stored)
        if not self._same:
            raise ValueError(f"the run {run} holds no calls to a model")

    def reply(self, request: Request) -> Call:
        """Return the stored answer; raise `Denied` with the reason where there is none."""
        text, work = request.render(), request.work.lease.work
        with self._lock:
            stored = self._pick(text, work)
            if stored is not None:
                self._given.add(stored.row)
        if stored is None:
            if self._was_shrunk(request):
                raise TooLong("the stored run asked with a smaller window")
            raise Denied(f"{self.name}: {self._why(text, work)}")
        try:
            return self._read(stored, text)
        except ValueError as error:
            raise Denied(f"{self.name}: {error}") from error

    def _pick(self, text: str, work: str) -> Stored | None:
        for found in self._answers(text):
            left = [stored for stored in found if stored.row not in self._given]
            if left:
                return next((stored for stored in left if stored.work == work), left[0])
        return None

    def _answers(self, text: str) -> tuple[list[Stored], list[Stored]]:
        return (
            self._same.get(request_key(text), []),
            self._alike.get(request_key(unmeasured(text)), []),
        )

    def _was_shrunk(self, request: Request) -> bool:
        smaller = request.shrunk()
        while smaller is not None:
            if any(self._answers(smaller.render())):
                return True
            smaller = smaller.shrunk()
        return False

    def _why(self, text: str, work: str) -> str:
        """Say why there is no reply, and where the stored run went another way."""
        known = self._answers(text)
        if any(known):
            times = max(map(len, known))
            return f"{work} asks what {times} stored calls asked before it: there is no reply left"
        asked = next((request for stored, request in self._requests() if stored.work == work), None)
        if asked is None:
            return f"the stored run never asked for {work}: it ended before, or went another way"
        line, mine, theirs = first_difference(unmeasured(text), unmeasured(asked))
        return (
            f"the stored run asked otherwise for {work}: from line {line} on,"
            f" {theirs.strip()[:SHOWN]!r} there and {mine.strip()[:SHOWN]!r} here"
        )

    # --- the file ----------------------------------------------------------------------------

    def _requests(self) -> Iterator[tuple[Stored, str]]:
        with closing(self._open()) as run:
            # A lost call (its agent was killed) is counted there, and nobody saw its reply.
            for row, work, request in self._rows(
                run, "SELECT id, work, request FROM call WHERE stop != 'lost' ORDER BY id"
            ):
                yield Stored(row=row, work=work), request

    def _read(self, stored: Stored, text: str) -> Call:
        with closing(self._open()) as run:
            query = (
                "SELECT reply, stop, input_tokens, cached_tokens, output_tokens, seconds"
                " FROM call WHERE id = ?"
            )
            row = next(self._rows(run, query, stored.row))
        fields = ("reply", "stop", "input_tokens", "cached_tokens", "output_tokens", "seconds")
        told = dict(zip(fields, row, strict=True))
        return msgspec.convert({**told, "model": self.name, "request": text, "usd": 0.0}, Call)

    def _open(self) -> sqlite3.Connection:
        if not self._path.is_file():
            raise ValueError(f"{self._run} is no run folder: it has no {FILE_NAME}")
        return sqlite3.connect(truth.for_reading(self._path), uri=True)

    def _rows(
        self, run: sqlite3.Connection, query: str, *values: object
    ) -> Iterator[tuple[Any, ...]]:
        try:
            yield from run.execute(query, values)
        except sqlite3.DatabaseError as error:
            raise ValueError(f"can't read {self._path}: {error}") from error
