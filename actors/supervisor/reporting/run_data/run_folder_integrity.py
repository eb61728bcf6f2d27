"""Checks that a run folder is complete, before anything in it is written.

A run without its `run.db` looks like one that has not begun, and a resume would write empty results
over good ones.  So the lock file says how many attempts were recorded (`noted`), and the content of
the folder is compared with that number.  `--resume` and the scripts that read a run use this check.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from protocol import settings as settings_file
from protocol import tickets
from protocol.run_db import RUN_DB, read_only_uri
from protocol.values import Task, Value

LOCK_NAME = "lock"
NOTED_KEY = "recorded"
NOTE_BYTES = 200
RUN_FILES = (
    *(settings_file.FILE_NAME, RUN_DB, f"{RUN_DB}-wal", f"{RUN_DB}-shm"),
    *(LOCK_NAME, "coordinator.lock", "result.json", "report.html", "keys.json", tickets.FILE_NAME),
)
RUN_FOLDERS = ("logs", "tasks", "scratch", "spool")
WRITTEN_FILES = ("best*.py", "tasks/*.py", "logs/*.jsonl", "logs/*.log", "logs/*.out")
RESULT_FILES = ("result.json", "report.html", "best.py", "best-*.py")


class DamagedRunError(ValueError):
    """`run.db` is not the one that the run left; one line says what is wrong and what to do."""


class StoredRun(Value, frozen=True, kw_only=True):
    """The part of `run.db` that must agree with the other files."""

    tasks: tuple[Task, ...] = ()  # none: the run has not begun
    recorded: int = 0  # attempts


def is_served(run_dir: Path) -> bool:
    """Whether a supervisor serves a run now, also while it starts its coordinator again.

    The lock is tried for an instant: /proc/locks does not show locks of other containers, and is
    missing in some.  A supervisor that begins in that instant tries again.
    """
    try:
        descriptor = os.open(run_dir / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def check_readable(run_dir: Path) -> StoredRun:
    """Return the stored part of a run that is only read; raise ValueError with one line."""
    if not run_dir.is_dir():
        what = "it is a file" if run_dir.exists() else "there is no such folder"
        raise ValueError(f"{run_dir} is not a run folder: {what}")
    if not os.path.lexists(run_dir / settings_file.FILE_NAME):
        raise ValueError(f"{run_dir} has no {settings_file.FILE_NAME}, as a run folder has")
    named = settings_file.read(run_dir).tasks
    stored = check_run_folder(run_dir)
    check_settings(run_dir, named, stored)
    if not stored.tasks:
        raise ValueError(f"{run_dir} is a run that has not begun: there is nothing to read yet")
    return stored


def check_run_folder(run_dir: Path) -> StoredRun:
    """Return the stored part of a run; raise DamagedRunError when something of it is missing.

    Raises another ValueError when a file other than `run.db` is wrong.
    """
    check_kinds(run_dir)
    stored = _stored_run(run_dir)
    noted = _noted_attempts(run_dir)
    if not stored.tasks:
        _refuse_lost(run_dir, noted)
        return stored
    if noted is not None and stored.recorded < noted:
        raise DamagedRunError(
            f"{run_dir}/{RUN_DB} holds {stored.recorded} attempts and the run had recorded"
            f" {noted}: it is an older one, or its {RUN_DB}-wal was removed; put back the newer"
            f" files, or go on from the older ones by removing {run_dir}/{LOCK_NAME}"
        )
    return stored


def open_read_only(run_dir: Path) -> sqlite3.Connection:
    """Open `run.db` to read it once.

    Without a write-ahead log no process writes.  A reader that says so (`immutable`) leaves no
    files of its own.
    """
    path = run_dir / RUN_DB
    log = path.with_name(f"{RUN_DB}-wal")
    is_unwritten = not log.is_file() or not log.stat().st_size
    uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1" if is_unwritten else read_only_uri(path)
    return sqlite3.connect(uri, uri=True, timeout=5.0)


def check_settings(run_dir: Path, named: tuple[str, ...], stored: StoredRun) -> None:
    """Raise ValueError when `stark.toml` names other tasks than the run has."""
    path = run_dir / settings_file.FILE_NAME
    if not named:
        raise ValueError(f"{path} names no tasks: it is not the file that this run wrote")
    known = tuple(task.name for task in stored.tasks)
    if known and set(known) != set(named):
        raise ValueError(
            f"{path} is of another run: it names the tasks {', '.join(named)}, and {RUN_DB} holds"
            f" {', '.join(known)}"
        )


def note_recorded(descriptor: int, run_id: str, recorded: int) -> None:
    """Write into the open lock file how many attempts `run.db` is known to hold."""
    os.pwrite(descriptor, f"{run_id}\n{NOTED_KEY} {recorded}\n".encode(), 0)


@contextmanager
def remove_side_files(run_dir: Path) -> Iterator[None]:
    """Remove the files that SQLite and the lock make in a run folder that turns out to be damaged.

    Only for the holder of the lock: no other process uses these files then.
    """
    side_files = (LOCK_NAME, f"{RUN_DB}-wal", f"{RUN_DB}-shm")
    before = {name for name in side_files if os.path.lexists(run_dir / name)}
    try:
        yield
    except BaseException:
        for name in set(side_files) - before:
            (run_dir / name).unlink(missing_ok=True)
        raise


def check_kinds(run_dir: Path) -> None:
    """Raise ValueError for a folder in the place of a file and the like, or an unreadable file."""
    found = [path for pattern in WRITTEN_FILES for path in run_dir.glob(pattern)]
    for name in (*RUN_FILES, *(str(path.relative_to(run_dir)) for path in found)):
        path = run_dir / name
        error = DamagedRunError if name.startswith(RUN_DB) else ValueError
        if os.path.lexists(path) and not path.is_file():
            raise error(f"{path} is not a file, as a run has there: move it away")
        if path.is_file() and not os.access(path, os.R_OK):
            raise error(f"{path} can't be read: {os.strerror(errno.EACCES)}")
    for name in RUN_FOLDERS:
        path = run_dir / name
        if os.path.lexists(path) and not path.is_dir():
            raise ValueError(f"{path} is not a folder, as a run has there: move it away")


def _refuse_lost(run_dir: Path, noted: int | None) -> None:
    """Raise DamagedRunError for a run that had begun and of which nothing is stored."""
    results = sorted(path.name for pattern in RESULT_FILES for path in run_dir.glob(pattern))
    log = run_dir / f"{RUN_DB}-wal"
    begun = noted is not None or results or (log.is_file() and log.stat().st_size > 0)
    if not begun:
        return
    path = run_dir / RUN_DB
    state = "is missing" if not path.exists() else "is empty" if not path.stat().st_size else ""
    problem = state or f"holds nothing of this run (was its {RUN_DB}-wal removed?)"
    unchanged = f"; left as it is: {', '.join(results)}" if results else ""
    raise DamagedRunError(
        f"{path} {problem}: put it back to go on with this run, or start a new one with"
        f" --task{unchanged}"
    )


def _noted_attempts(run_dir: Path) -> int | None:
    """Return the number of attempts in the lock file; None where it holds none."""
    try:
        with (run_dir / LOCK_NAME).open("rb") as file:
            fields = file.read(NOTE_BYTES).split()
    except OSError:
        return None
    if len(fields) < 3 or fields[1] != NOTED_KEY.encode() or not fields[2].isdigit():
        return None
    return int(fields[2])


def _stored_run(run_dir: Path) -> StoredRun:
    path = run_dir / RUN_DB
    if not path.is_file() or not path.stat().st_size:
        return StoredRun()
    try:
        with closing(open_read_only(run_dir)) as run:
            (found,) = run.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(" ".join(str(found).split()))
            return _read(run)
    except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
        raise DamagedRunError(
            f"{path} is damaged ({error}): put back a good copy of it to go on with this run"
        ) from error


def _read(run: sqlite3.Connection) -> StoredRun:
    tables = {name for (name,) in run.execute("SELECT name FROM sqlite_schema")}
    if not {"run", "task", "node"} <= tables:
        return StoredRun()
    if not run.execute("SELECT COUNT(*) FROM run").fetchone()[0]:
        return StoredRun()
    rows = run.execute("SELECT name, source, settings FROM task ORDER BY rowid").fetchall()
    (recorded,) = run.execute("SELECT COUNT(*) FROM node WHERE number > 0").fetchone()
    tasks = tuple(
        msgspec.msgpack.decode(blob, type=Task) if blob else Task(name=name, source=source)
        for name, source, blob in rows
    )
    return StoredRun(tasks=tasks, recorded=recorded)
