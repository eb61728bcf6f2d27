"""One run for any number of pages: reads `run.db` when it has changed, and answers `since`.

It opens the file anew for each read and never writes, so that a run may begin, end, be resumed, be
copied over or be removed under it.  What can't be read at a moment is tried again at the next one;
the last state that was read stays.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from actors.supervisor.reporting.feed import feed_rows
from actors.supervisor.reporting.feed.feed_state import FeedState, after, everything
from actors.supervisor.reporting.feed.feed_values import Changes, RunSummary
from actors.supervisor.reporting.feed.waiting_directives import WaitingDirectives
from actors.supervisor.reporting.run_data import run_folder_integrity
from protocol import settings as settings_file
from protocol.run_db import RUN_DB
from protocol.settings import Settings
from protocol.values import Value

SETTLED_S = 1.0  # without a write, after which a file has been read as it is
BUSY_MS = 500  # a page tries again; other pages wait meanwhile
SERVED_S = 5.0  # a coordinator writes four times a second
LIVE_STATUSES = ("running", "draining")


class FileState(Value, frozen=True, kw_only=True):
    """What the file system says of `run.db` and its log: enough to see that they have changed."""

    files: tuple[tuple[int, int, int, int], ...]  # device, inode, size, time of the last write

    @property
    def written_at(self) -> float:
        """When the run wrote last; wall clock."""
        return max((stamp for *_, stamp in self.files), default=0) / 1e9


class RunUnreadableError(sqlite3.OperationalError):
    """`run.db` can't be read at this moment; one line says why."""


class RunFeed:
    """The present state of one run."""

    def __init__(
        self, run_dir: Path, identifier: str, clock: Callable[[], float] = time.time
    ) -> None:
        """`identifier`: the run's name in addresses, which is not its path."""
        self.run_dir = run_dir
        self.version = 0  # grows when there is something new to show
        self._id = identifier
        self._clock = clock
        self._state = FeedState()
        self._run: feed_rows.RunRow | None = None
        self._settings: Settings | None = None
        self._file: FileState | None = None
        self._read_at = 0.0
        self._trouble = ""
        self._shown: RunSummary | None = None
        self._spool = WaitingDirectives(run_dir)

    def refresh(self) -> None:
        """Read what has changed; errors become a line that the run's summary shows."""
        found = file_state(self.run_dir)
        if found.files != getattr(self._file, "files", None) or not self._is_settled(found):
            self._read(found)
        summary = msgspec.structs.replace(self._summary(), seconds=0.0)
        if self._spool.refresh() or summary != self._shown:
            self._shown = summary
            self.version += 1

    def since(self, seq: int) -> Changes:
        """Return the run, and all that changed after a number; with 0 all there is."""
        state = self._state
        is_whole = seq <= 0 or seq > state.seq or not state.has_feed
        rows = everything if is_whole else lambda entries: after(entries, seq)
        return Changes(
            seq=state.seq,
            now=self._clock(),
            whole=is_whole,
            run=self._summary(),
            tasks=list(rows(state.tasks)),
            nodes=list(rows(state.nodes)),
            attempts=state.attempts,
            workers=list(rows(state.workers)),
            events=list(rows(state.events)),
            directives=[*rows(state.directives), *self._spool.rows(state.directives)],
        )

    def best(self, task: str) -> int | None:
        """Return the number of a task's best node."""
        return self._state.best.get(task)

    @property
    def summary(self) -> RunSummary:
        """The run itself."""
        return self._summary()

    @property
    def task_names(self) -> tuple[str, ...]:
        """The tasks in the order in which they were named."""
        return tuple(self._state.tasks)

    # --- reading -----------------------------------------------------------------------------

    def _is_settled(self, found: FileState) -> bool:
        """Whether the last read has seen all that was written: clocks of files are coarse."""
        return self._read_at - found.written_at > SETTLED_S

    def _read(self, found: FileState) -> None:
        self._read_at = self._clock()
        self._file = found
        try:
            if not found.files:
                self._forget()
                return
            with opened_run(self.run_dir) as run:
                self._read_run(run)
            self._trouble = ""
        except RunUnreadableError as error:
            self._file = None  # tried again at the next refresh
            self._trouble = str(error)

    def _read_run(self, run: sqlite3.Connection) -> None:
        row = feed_rows.run_row(run)
        if row is None:
            return
        is_same = self._run is not None and self._run.run_id == row.run_id
        self._run = row
        if is_same and self._state.can_follow(run):
            is_new = self._follow(run)
        else:
            state = FeedState()
            state.load(run)
            self._state, is_new = state, True
        if is_new:
            self._settings = _settings(self.run_dir)
            self.version += 1

    def _follow(self, run: sqlite3.Connection) -> bool:
        try:
            return self._state.update(run)
        except BaseException:
            self._state = FeedState()  # it is half brought up to date: read everything next time
            raise

    def _forget(self) -> None:
        """Show a run that is not there (any more)."""
        if self._run is not None:
            self._run, self._state, self._settings = None, FeedState(), None
            self.version += 1
        self._trouble = ""

    def _summary(self) -> RunSummary:
        run, settings = self._run, self._settings
        waiting = RunSummary(id=self._id, name=self.run_dir.name, trouble=self._trouble)
        if run is None:
            return waiting
        is_live = run.status in LIVE_STATUSES
        silent_s = self._clock() - self._file.written_at if self._file else math.inf
        return msgspec.structs.replace(
            waiting,
            run_id=run.run_id,
            status=run.status,
            reason=run.reason,
            is_served=is_live and silent_s < SERVED_S,
            seconds=run.seconds,
            started=run.created,
            budget=self._state.budget,
            usd=self._state.usd,
            paused=run.paused,
            finishing=run.finishing,
            cap_usd=settings.max_cost if run.cap_usd is None and settings else run.cap_usd,
            person=self._state.person,
            questions=self._spool.questions,
            minutes=settings.max_minutes if settings else None,
            strategy=settings.strategy if settings else "",
            policy=settings.requested_policy if settings else None,
            model=settings.model if settings else "",
        )


@contextmanager
def opened_run(run_dir: Path) -> Iterator[sqlite3.Connection]:
    """Open `run.db` for one read transaction; raise RunUnreadableError with one line."""
    try:
        with closing(run_folder_integrity.open_read_only(run_dir)) as run:
            run.text_factory = _text  # a byte that is not UTF-8 must not end a page
            run.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            run.execute("BEGIN")
            yield run
    except (sqlite3.Error, msgspec.MsgspecError, UnicodeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise RunUnreadableError(f"{RUN_DB} can't be read ({reason}): trying again") from error


def file_state(run_dir: Path) -> FileState:
    """Return the state of the database and its log; no files where there is no database."""
    found = []
    for name in (RUN_DB, f"{RUN_DB}-wal"):
        try:
            status = (run_dir / name).stat()
        except OSError:
            if name == RUN_DB:
                break
            continue
        found.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
    return FileState(files=tuple(found))


def _settings(run_dir: Path) -> Settings | None:
    try:
        return settings_file.read(run_dir)
    except ValueError:
        return None  # a copied database alone: the page shows what it has


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")
