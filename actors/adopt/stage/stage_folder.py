"""The folder of one adopted model: each stage reads the files of earlier stages and adds its own.

A stage writes its result file last and in one step.  A stage that was killed has no result file,
and is made again; what it had written before is replaced.

    model.json     the model's file, its hash, and how it is run     look
    look.json      where the time is                                 look
    captures/      inputs and outputs as recorded, mode 0600         take
    tasks/NAME/    a task and its cases                              take
    take.json      what was taken, and what was not and why          take
    runs/NAME/     the runs of the tasks                             all
    stark_fitted/  the package that puts winners into the model      fit
    fit.json       which winner is for which modules                 fit
    check.json     what the whole model gained                       check
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from actors.adopt.stage.errors import AdoptError

Stored = TypeVar("Stored")


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """model.json: the model's file and how `look` ran it."""

    path: str  # absolute
    sha256: str  # of the file's bytes
    batches: int  # how many batches are used


class StageFolder:
    """One model's folder, `adopt/NAME` by default."""

    def __init__(self, path: Path) -> None:
        """`path` need not exist before the first file is written."""
        self.path = path.absolute()  # the user's code may change the working directory

    def check_own(self) -> None:
        """Raise AdoptError where no stage can write here: before hours are spent on a result.

        The folder is not there yet, or empty, or an adopted model's.
        """
        whole = self.path
        check_text(whole)
        try:
            place = next(each for each in (whole, *whole.parents) if os.path.lexists(each))
            names = sorted(each.name for each in whole.iterdir()) if whole.is_dir() else []
        except OSError as error:
            raise AdoptError(f"can't use {self.path}: {error.strerror}") from error
        if not place.is_dir():
            raise AdoptError(f"can't write into {self.path}: {place} is a file")
        if not os.access(place, os.W_OK | os.X_OK):
            raise AdoptError(f"can't write into {self.path}: {place} is not writable")
        if names and not self._is_own():
            raise AdoptError(
                f"{self.path} is not empty and holds no adopted model ({names[0]}): choose another"
                " folder with --out"
            )

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other commands out while it is open; a folder that is not there yet is free.

        Raises AdoptError where another command is at work: both would replace the same files.  The
        lock is the system's, so that it ends with the process, also after a kill -9.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:  # the stage says what is wrong with it
            yield
            return
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise AdoptError(
                        f"another adopt command is at work in {self.path}: wait for its end, or"
                        " choose another folder with --out"
                    ) from error
            yield
        finally:
            os.close(descriptor)

    def _is_own(self) -> bool:
        try:
            self.read("model.json", ModelRecord, "adopt.py look")
        except AdoptError:
            return False
        return True

    def write(self, name: str, value: object) -> None:
        """Write a stage's result as JSON, whole or not at all."""
        text = msgspec.json.format(msgspec.json.encode(value), indent=1)
        self.write_bytes(name, text + b"\n")

    def write_text(self, name: str, text: str) -> None:
        """Write a text file, whole or not at all."""
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, content: bytes, mode: int = 0o644) -> None:
        """Write a file, whole or not at all; raise AdoptError when the disk does not take it."""
        self.write_file(name, lambda file: file.write(content), mode)

    def write_file(self, name: str, fill: Callable[[BinaryIO], object], mode: int) -> int:
        """Write what `fill` writes into a file, whole or not at all; return its size in bytes.

        Raises AdoptError when the disk does not take it.
        """
        target = self.path / name
        part = target.with_name(f".{target.name}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            part.unlink(missing_ok=True)
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "wb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            part.replace(target)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise AdoptError(f"can't write {target}: {error.strerror}") from error
        return size

    def read(self, name: str, kind: type[Stored], stage: str) -> Stored:
        """Read the result of an earlier stage; raise AdoptError when there is none."""
        target = self.path / name
        try:
            return msgspec.json.decode(target.read_bytes(), type=kind)
        except FileNotFoundError as error:
            raise AdoptError(f"{self.path} has no {name}: run `{stage}` first") from error
        except OSError as error:
            raise AdoptError(f"can't read {target}: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise AdoptError(
                f"{target} is not what `{stage}` writes ({error}): run it again"
            ) from (error)

    def has(self, name: str) -> bool:
        """Whether a file exists."""
        return (self.path / name).is_file()

    def remove(self, *names: str) -> None:
        """Remove results of later stages, which a repeated stage makes invalid."""
        for name in names:
            try:
                (self.path / name).unlink(missing_ok=True)
            except OSError as error:
                raise AdoptError(f"can't remove {self.path / name}: {error.strerror}") from error


def check_text(path: Path) -> None:
    """Raise AdoptError for a path that no JSON file can hold."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise AdoptError(
            f"{str(path)!a} is not UTF-8 text: rename it, or set PYTHONUTF8=1 where the"
            " locale is not UTF-8"
        ) from error


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file; raise AdoptError when it can't be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise AdoptError(f"can't read {path}: {error.strerror}") from error
