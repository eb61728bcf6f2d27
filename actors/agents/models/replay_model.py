"""A model that answers from a stored run: the calls in its `run.db`, read and never written.

A stored reply belongs to one request, found by its whole rendered text.  Figures that a machine
measured (times, logs, profiles) may differ, and nothing else.  A request that the stored run never
asked is not answered: the replay would no longer be that run.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from actors.agents.models.model import ModelDeniedError, RequestTooLongError
from actors.agents.models.replay_key import first_differing_line, without_measurements
from actors.agents.requests.request import Request
from protocol.run_db import RUN_DB, read_only_uri
from protocol.values import Call, Value, request_key

SHOWN_CHARS = 60  # characters of a line in which two requests differ


class StoredReply(Value, frozen=True, kw_only=True):
    """The row of one reply, and the work that it was given to."""

    row: int
    work: str


class ReplayModel:
    """Answers each request as it was answered in a stored run, at no cost.

    If one request has several replies, the reply that was given to the same work comes first, then
    the unused replies in stored order.  One process gives no reply twice.
    """

    at_once = 1

    def __init__(self, name: str, run: Path) -> None:
        self.name = name
        self._run = run
        self._path = run / RUN_DB
        self._lock = threading.Lock()
        self._rows_used: set[int] = set()
        self._by_exact_text: dict[str, list[StoredReply]] = {}
        self._by_replay_key: dict[str, list[StoredReply]] = {}  # figures left out
        for stored, request in self._requests():
            self._by_exact_text.setdefault(request_key(request), []).append(stored)
            self._by_replay_key.setdefault(request_key(without_measurements(request)), []).append(
                stored
            )
        if not self._by_exact_text:
            raise ValueError(f"the run {run} holds no calls to a model")

    def reply(self, request: Request) -> Call:
        """Return the stored answer; raise `ModelDeniedError` with the reason if there is none."""
        text, work = request.render(), request.work.lease.work
        with self._lock:
            stored = self._pick(text, work)
            if stored is not None:
                self._rows_used.add(stored.row)
        if stored is None:
            if self._request_was_shortened(request):
                raise RequestTooLongError("the stored run asked with a smaller window")
            raise ModelDeniedError(f"{self.name}: {self._mismatch_reason(text, work)}")
        try:
            return self._read(stored, text)
        except ValueError as error:
            raise ModelDeniedError(f"{self.name}: {error}") from error

    def _pick(self, text: str, work: str) -> StoredReply | None:
        for found in self._answers(text):
            left = [stored for stored in found if stored.row not in self._rows_used]
            if left:
                return next((stored for stored in left if stored.work == work), left[0])
        return None

    def _answers(self, text: str) -> tuple[list[StoredReply], list[StoredReply]]:
        return (
            self._by_exact_text.get(request_key(text), []),
            self._by_replay_key.get(request_key(without_measurements(text)), []),
        )

    def _request_was_shortened(self, request: Request) -> bool:
        smaller = request.without_largest_attempt()
        while smaller is not None:
            if any(self._answers(smaller.render())):
                return True
            smaller = smaller.without_largest_attempt()
        return False

    def _mismatch_reason(self, text: str, work: str) -> str:
        """Return why there is no reply, and where the stored run went another way."""
        known = self._answers(text)
        if any(known):
            times = max(map(len, known))
            return f"{work} asks what {times} stored calls asked before it: there is no reply left"
        stored_request = next(
            (request for stored, request in self._requests() if stored.work == work), None
        )
        if stored_request is None:
            return f"the stored run never asked for {work}: it ended before, or went another way"
        line, mine, theirs = first_differing_line(
            without_measurements(text), without_measurements(stored_request)
        )
        return (
            f"the stored run asked otherwise for {work}: from line {line} on,"
            f" {theirs.strip()[:SHOWN_CHARS]!r} there and {mine.strip()[:SHOWN_CHARS]!r} here"
        )

    # --- the file ----------------------------------------------------------------------------

    def _requests(self) -> Iterator[tuple[StoredReply, str]]:
        with closing(self._open()) as run:
            # A lost call (its agent was killed) has a row too, but no reply.
            for row, work, request in self._rows(
                run, "SELECT id, work, request FROM call WHERE stop != 'lost' ORDER BY id"
            ):
                yield StoredReply(row=row, work=work), request

    def _read(self, stored: StoredReply, text: str) -> Call:
        with closing(self._open()) as run:
            query = (
                "SELECT reply, stop, input_tokens, cached_tokens, output_tokens, seconds"
                " FROM call WHERE id = ?"
            )
            row = next(self._rows(run, query, stored.row))
        fields = ("reply", "stop", "input_tokens", "cached_tokens", "output_tokens", "seconds")
        stored_fields = dict(zip(fields, row, strict=True))
        return msgspec.convert(
            {**stored_fields, "model": self.name, "request": text, "usd": 0.0}, Call
        )

    def _open(self) -> sqlite3.Connection:
        if not self._path.is_file():
            raise ValueError(f"{self._run} is not a run folder: it has no {RUN_DB}")
        return sqlite3.connect(read_only_uri(self._path), uri=True)

    def _rows(
        self, run: sqlite3.Connection, query: str, *values: object
    ) -> Iterator[tuple[Any, ...]]:
        try:
            yield from run.execute(query, values)
        except sqlite3.DatabaseError as error:
            raise ValueError(f"can't read {self._path}: {error}") from error
