"""The run folder: made completely or not at all, locked while a supervisor serves it.

A new run becomes resumable with its last file, `stark.toml`; on a failure before that the folder is
removed again.  The lock file also holds the run's id, by which orphaned processes are found.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from actors.cli import UsageError
from actors.supervisor.cli.preflight import TaskFile
from actors.supervisor.reporting.run_data import run_folder_integrity
from actors.supervisor.reporting.run_data.run_folder_integrity import (
    LOCK_NAME,
    DamagedRunError,
    StoredRun,
)
from actors.task_cases import options_of, options_text, stored_name
from protocol import settings as settings_file
from protocol.atomic_file import write_atomically
from protocol.run_db import RUN_DB
from protocol.settings import MODULES, Settings
from protocol.values import Task

NAME_SUFFIXES = ("", *(f"-{number}" for number in range(2, 100)))
TRIED_S = 0.2  # a lock is tried: `is_served` holds it for an instant


class RunFolder:
    """One run folder, locked until it is closed."""

    def __init__(
        self, path: Path, *, shown: str, run_id: str, lock: int, created: list[Path]
    ) -> None:
        self.path = path  # absolute
        self.shown = shown  # as the user would type it
        self.run_id = run_id
        self._lock = lock
        self._noted_count = -1
        self._created = created  # the folders that did not exist before, outermost first

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def quoted(self) -> str:
        """The folder as a word of a command that the user can paste into a shell."""
        return shlex.quote(self.shown)

    @property
    def lost_part(self) -> str:
        """What of the run was moved or removed since it was locked; "" where all is in place."""
        if not self._holds_lock():
            return f"{self.shown}, or the lock in it,"
        if self._noted_count >= 0 and not (self.path / RUN_DB).exists():
            return f"{self.shown}/{RUN_DB}"
        return ""

    def _holds_lock(self) -> bool:
        try:
            return os.path.samestat((self.path / LOCK_NAME).stat(), os.fstat(self._lock))
        except OSError:
            return False

    def close(self) -> None:
        """Release the lock: another supervisor may serve the run."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def write(self, settings: Settings, tasks: tuple[TaskFile, ...] = ()) -> None:
        """Write task copies, then the settings: with these the folder is a run."""
        for name in ("logs", "tasks"):
            (self.path / name).mkdir(exist_ok=True)
        for task in tasks:
            for file, text in _files_of(self.path, task):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
        settings_file.write(self.path, settings)

    def rebuild(self, stored: StoredRun) -> None:
        """Write `tasks/` again where it differs from `run.db`, which holds the tasks of the run."""
        for name in ("logs", "tasks"):
            (self.path / name).mkdir(exist_ok=True)
        for task in stored.tasks:
            for file, text in _files_of(self.path, task):
                if not _holds(file, text):
                    file.parent.mkdir(parents=True, exist_ok=True)
                    write_atomically(file, text)

    def note_recorded(self, recorded: int) -> None:
        """Note in the lock file how many attempts are recorded: that reveals a lost `run.db`."""
        if self._lock >= 0 and recorded != self._noted_count:
            self._noted_count = recorded
            with suppress(OSError):  # a full disk; the next count is noted
                run_folder_integrity.note_recorded(self._lock, self.run_id, recorded)

    def remove_live_files(self) -> None:
        """Remove what only live processes need: scratch, the socket, empty output files."""
        shutil.rmtree(self.path / "scratch", ignore_errors=True)
        with suppress(FileNotFoundError):
            (self.path / "coordinator.sock").unlink()
        for output in (self.path / "logs").glob("*.out"):
            if output.stat().st_size == 0:
                output.unlink()

    def remove(self) -> None:
        """Undo a new run: remove its folder, or empty a folder that existed before."""
        self.close()
        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()
        for folder in reversed(self._created):
            with suppress(OSError):  # another run was made in this folder in the meantime
                folder.rmdir()


def make_run_folder(wanted: Path | None, tasks: tuple[TaskFile, ...]) -> RunFolder:
    """Make and lock the folder of a new run; raise UsageError with one line."""
    path = wanted if wanted is not None else _free_name(tasks)
    created: list[Path] = []
    try:
        if path.is_dir():
            _refuse_used(path)
        _make_folders(path, created)
        descriptor = _lock(path)
        run_id = _read_run_id(descriptor)
    except OSError as error:
        _remove_created(path, created)
        raise UsageError(f"can't make the run folder {path}: {error.strerror}") from error
    return RunFolder(
        path.resolve(), shown=str(path), run_id=run_id, lock=descriptor, created=created
    )


def open_run_folder(path: Path) -> tuple[RunFolder, Settings, StoredRun]:
    """Lock an old run; return it with its settings and the tasks that are stored.

    Raises UsageError or DamagedRunError with one line; the folder is unchanged then.
    """
    try:
        if not path.is_dir():
            what = "it is a file" if path.exists() else "there is no such folder"
            raise UsageError(f"--resume {path}: {what}")
    except OSError as error:
        raise UsageError(f"--resume {path}: {error.strerror}") from error
    if not os.path.lexists(path / settings_file.FILE_NAME):
        name = settings_file.FILE_NAME
        if (path / RUN_DB).exists():
            raise UsageError(f"--resume {path}: its {name} is missing: put it back")
        raise UsageError(f"--resume {path}: that is not a run folder (it has no {name})")
    try:
        with run_folder_integrity.remove_side_files(path):
            run_folder_integrity.check_kinds(path)
            return _locked_run(path)
    except DamagedRunError:
        raise
    except OSError as error:
        raise UsageError(f"--resume {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"--resume {path}: {error}") from error


def _locked_run(path: Path) -> tuple[RunFolder, Settings, StoredRun]:
    descriptor = _lock(path)
    try:
        run_id = _read_run_id(descriptor)
        settings = settings_file.read(path)
        stored = run_folder_integrity.check_run_folder(path)
        run_folder_integrity.check_settings(path, settings.tasks, stored)
        _check_begin(path, settings.tasks, stored)
    except BaseException:
        os.close(descriptor)
        raise
    folder = RunFolder(path.resolve(), shown=str(path), run_id=run_id, lock=descriptor, created=[])
    return folder, settings, stored


def _check_begin(path: Path, names: tuple[str, ...], stored: StoredRun) -> None:
    """Raise ValueError for a run that has not begun and lacks a task file."""
    if stored.tasks:
        return
    for name in names:
        file = path / "tasks" / f"{name}.py"
        if not file.is_file():
            raise ValueError(
                f"{file} is missing, and the run has not begun yet: start a new one with --task"
            )


def make_guest_folder(wanted: Path | None, name: str) -> RunFolder:
    """Return the folder of a machine that joins: the former one, if it is not in use.

    Raises UsageError with one line, or OSError.
    """
    paths = [wanted] if wanted is not None else [Path("runs") / f"{name}{n}" for n in NAME_SUFFIXES]
    for path in paths:
        if (path / settings_file.FILE_NAME).exists() and (path / "tasks").exists():
            raise UsageError(f"--run-dir {path} is a run's own folder: choose another")
        created: list[Path] = []
        _make_folders(path, created)
        try:
            descriptor = _lock(path)
            run_id = _read_run_id(descriptor)
            (path / "logs").mkdir(exist_ok=True)
        except UsageError:
            if path is paths[-1]:
                raise
            continue  # another supervisor of this machine takes part in the same run
        except OSError:
            _remove_created(path, created)
            raise
        return RunFolder(
            path.resolve(), shown=str(path), run_id=run_id, lock=descriptor, created=created
        )
    raise UsageError("--join: no folder is free")


def _read_run_id(descriptor: int) -> str:
    """Return the run's id from a lock file; make one where there is none."""
    fields = os.pread(descriptor, 100, 0).decode(errors="replace").split()
    run_id = fields[0] if fields else ""
    if not run_id:
        run_id = secrets.token_hex(8)
        os.pwrite(descriptor, f"{run_id}\n".encode(), 0)
    return run_id


def _lock(path: Path) -> int:
    """Return the lock's descriptor; children don't inherit it: it ends with this process."""
    descriptor = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + TRIED_S
    while not _is_taken(descriptor):
        if time.monotonic() > until:
            os.close(descriptor)
            raise UsageError(f"another supervisor serves {path}: wait for it, or stop it")
        time.sleep(TRIED_S / 20)
    return descriptor


def _is_taken(descriptor: int) -> bool:
    """Whether a lock could be taken; True from then on."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _refuse_used(path: Path) -> None:
    """Raise UsageError for a folder that is not empty; the hint depends on its content."""
    found = sorted(entry.name for entry in path.iterdir())
    if not found:
        return
    if settings_file.FILE_NAME in found and RUN_DB in found:
        raise UsageError(
            f"--run-dir {path} holds a run already: choose another folder, or go on with that run:"
            f" --resume {shlex.quote(str(path))} without --task"
        )
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    raise UsageError(
        f"--run-dir {path} is not empty (it holds {found[0]}{more}): choose a folder that is empty"
        " or not there yet"
    )


def _make_folders(path: Path, created: list[Path]) -> None:
    whole = path.absolute()  # the supervisor moves into the run folder later
    missing = [folder for folder in (whole, *whole.parents) if not folder.exists()]
    for folder in reversed(missing):
        try:
            folder.mkdir()
        except FileExistsError:  # another run has just made a folder that is above both
            continue
        created.append(folder)
    if not path.is_dir():
        raise UsageError(f"--run-dir {path} is a file: choose another")


def _remove_created(path: Path, created: list[Path]) -> None:
    """Remove the folders of a failed run; a folder that existed before stays."""
    if created:
        with suppress(OSError):
            (path / LOCK_NAME).unlink()
    for folder in reversed(created):
        with suppress(OSError):
            folder.rmdir()


def _files_of(run_dir: Path, task: TaskFile | Task) -> Iterator[tuple[Path, str]]:
    """Yield the files of `tasks/` that hold a task: its source, its cases, what it imports."""
    yield run_dir / "tasks" / f"{task.name}.py", task.source
    options = task.options if isinstance(task, TaskFile) else options_of(task)
    if text := options_text(options):
        yield run_dir / "tasks" / stored_name(task.name), text
    for name, text in task.modules.items():
        yield run_dir / MODULES / task.name / name, text


def _holds(file: Path, text: str) -> bool:
    try:
        return file.read_text(encoding="utf-8") == text
    except (OSError, ValueError):
        return False


def _free_name(tasks: tuple[TaskFile, ...]) -> Path:
    more = f"-and-{len(tasks) - 1}-more" if len(tasks) > 1 else ""
    name = f"{tasks[0].name}{more}-{time.strftime('%Y%m%d-%H%M%S')}"
    number = 1
    path = Path("runs") / name
    while path.exists():
        number += 1
        path = Path("runs") / f"{name}-{number}"
    return path
