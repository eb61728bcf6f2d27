"""The run directory: made whole or not at all, locked while a supervisor serves it.

A new run becomes resumable with its last file, `stark.toml`; before that it is removed again on
any failure.  The lock file also holds the run's mark, by which leftovers are found.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from actors.cli import UsageError
from actors.supervisor.cli.preflight import TaskFile
from actors.supervisor.reporting import run_folder_integrity
from actors.supervisor.reporting.run_folder_integrity import LOCK_NAME, DamagedRunError, StoredRun
from actors.supervisor.reporting.run_reader import FILE_NAME as RUN_DB
from protocol import settings as settings_file
from protocol.atomic_file import write_atomically
from protocol.settings import MODULES, Settings
from protocol.values import Task

NAME_SUFFIXES = ("", *(f"-{number}" for number in range(2, 100)))


class RunFolder:
    """One run directory, locked until it is closed."""

    def __init__(self, path: Path, *, shown: str, run_id: str, lock: int, made: list[Path]) -> None:
        self.path = path  # absolute
        self.shown = shown  # as the user would type it
        self.run_id = run_id
        self._lock = lock
        self._noted = -1
        self._made = made  # the folders that did not exist before, outermost first

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another supervisor have the run."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def write(self, settings: Settings, tasks: tuple[TaskFile, ...] = ()) -> None:
        """Write task copies, then the settings, by which the folder becomes a run."""
        for name in ("logs", "tasks"):
            (self.path / name).mkdir(exist_ok=True)
        for task in tasks:
            for file, text in _files_of(self.path, task):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
        settings_file.write(self.path, settings)

    def rebuild(self, stored: StoredRun) -> None:
        """Write `tasks/` again where it is not what `run.db` holds, which is the truth."""
        for name in ("logs", "tasks"):
            (self.path / name).mkdir(exist_ok=True)
        for task in stored.tasks:
            for file, text in _files_of(self.path, task):
                if not _holds(file, text):
                    file.parent.mkdir(parents=True, exist_ok=True)
                    write_atomically(file, text)

    def note_recorded(self, recorded: int) -> None:
        """Note how many attempts are recorded: by that a lost `run.db` is found out."""
        if self._lock >= 0 and recorded != self._noted:
            self._noted = recorded
            with suppress(OSError):  # a full disk; the next one is noted
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
        """Undo a new run: remove the folder, or empty it where it was there before."""
        self.close()
        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()
        for folder in reversed(self._made):
            with suppress(OSError):  # somebody else put a run beside it meanwhile
                folder.rmdir()


def make_run_folder(wanted: Path | None, tasks: tuple[TaskFile, ...]) -> RunFolder:
    """Make and lock the folder of a new run; raise UsageError with one line."""
    path = wanted if wanted is not None else _free_name(tasks)
    made: list[Path] = []
    try:
        if path.is_dir():
            _refuse_used(path)
        _make_folders(path, made)
        descriptor = _lock(path)
        run_id = _mark(descriptor)
    except OSError as error:
        _unmake(path, made)
        raise UsageError(f"can't make the run folder {path}: {error.strerror}") from error
    return RunFolder(path.resolve(), shown=str(path), run_id=run_id, lock=descriptor, made=made)


def open_run_folder(path: Path) -> tuple[RunFolder, Settings, StoredRun]:
    """Lock an old run and return it with its settings and what is stored of it.

    Raises UsageError or DamagedRunError with one line, and nothing is touched then.
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
        raise UsageError(f"--resume {path}: that is no run folder (it has no {name})")
    try:
        with run_folder_integrity.remove_side_files(path):
            run_folder_integrity.check_kinds(path)
            return _taken_up(path)
    except DamagedRunError:
        raise
    except OSError as error:
        raise UsageError(f"--resume {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"--resume {path}: {error}") from error


def _taken_up(path: Path) -> tuple[RunFolder, Settings, StoredRun]:
    descriptor = _lock(path)
    try:
        run_id = _mark(descriptor)
        settings = settings_file.read(path)
        stored = run_folder_integrity.check_run_folder(path)
        run_folder_integrity.check_settings(path, settings.tasks, stored)
        _check_begin(path, settings.tasks, stored)
    except BaseException:
        os.close(descriptor)
        raise
    folder = RunFolder(path.resolve(), shown=str(path), run_id=run_id, lock=descriptor, made=[])
    return folder, settings, stored


def _check_begin(path: Path, names: tuple[str, ...], stored: StoredRun) -> None:
    """Raise ValueError for a run that has not begun and lacks what it would begin with."""
    if stored.tasks:
        return
    for name in names:
        file = path / "tasks" / f"{name}.py"
        if not file.is_file():
            raise ValueError(
                f"{file} is missing, and nothing was begun yet: start anew with --task"
            )


def make_guest_folder(wanted: Path | None, name: str) -> RunFolder:
    """Return the folder of a machine that joins: the one it had before, if nobody is in it.

    Raises UsageError with one line, or OSError.
    """
    paths = [wanted] if wanted is not None else [Path("runs") / f"{name}{n}" for n in NAME_SUFFIXES]
    for path in paths:
        if (path / settings_file.FILE_NAME).exists() and (path / "tasks").exists():
            raise UsageError(f"--run-dir {path} is a run's own folder: choose another")
        made: list[Path] = []
        _make_folders(path, made)
        try:
            descriptor = _lock(path)
            run_id = _mark(descriptor)
            (path / "logs").mkdir(exist_ok=True)
        except UsageError:
            if path is paths[-1]:
                raise
            continue  # another supervisor of this machine lends something to the same run
        except OSError:
            _unmake(path, made)
            raise
        return RunFolder(path.resolve(), shown=str(path), run_id=run_id, lock=descriptor, made=made)
    raise UsageError("--join: no folder is free")


def _mark(descriptor: int) -> str:
    """Return the mark in a lock file; make one where there is none."""
    words = os.pread(descriptor, 100, 0).decode(errors="replace").split()
    run_id = words[0] if words else ""
    if not run_id:
        run_id = secrets.token_hex(8)
        os.pwrite(descriptor, f"{run_id}\n".encode(), 0)
    return run_id


def _lock(path: Path) -> int:
    """Return the lock's descriptor; it is not inherited, so it ends with this process."""
    descriptor = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UsageError(f"another supervisor serves {path}: wait for it, or stop it") from None
    return descriptor


def _refuse_used(path: Path) -> None:
    """Raise UsageError for a folder that holds anything; what is done about it depends on what."""
    found = sorted(entry.name for entry in path.iterdir())
    if not found:
        return
    if settings_file.FILE_NAME in found and RUN_DB in found:
        raise UsageError(
            f"--run-dir {path} holds a run already: choose another folder, or go on with that run:"
            f" --resume {path} without --task"
        )
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    raise UsageError(
        f"--run-dir {path} is not empty (it holds {found[0]}{more}): choose a folder that is empty"
        " or not there yet"
    )


def _make_folders(path: Path, made: list[Path]) -> None:
    whole = path.absolute()  # the supervisor moves into the run directory later
    missing = [folder for folder in (whole, *whole.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir()
        made.append(folder)
    if not path.is_dir():
        raise UsageError(f"--run-dir {path} is a file: choose another")


def _unmake(path: Path, made: list[Path]) -> None:
    """Take back folders that could not be made whole; a folder that was there before stays."""
    if made:
        with suppress(OSError):
            (path / LOCK_NAME).unlink()
    for folder in reversed(made):
        with suppress(OSError):
            folder.rmdir()


def _files_of(run_dir: Path, task: TaskFile | Task) -> Iterator[tuple[Path, str]]:
    """Yield the files of `tasks/` that hold a task: its own, and the modules beside it."""
    yield run_dir / "tasks" / f"{task.name}.py", task.source
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
