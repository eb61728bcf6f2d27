"""The record of a build: which way it was built, why, and how long each phase took."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec

from actors.evaluator.fastbuild.request.compiler_remarks import known_remarks
from actors.evaluator.fastbuild.request.flag_set import FlagSet
from protocol.values import Value

BuildWay = Literal["light", "torch", "ready", "refused"]
RECORD_FOLDER = "stark"  # fast builds' own folder in torch's build folder
RECORD_FILE = "build.json"
MAX_READ = 20  # folders of builds of one candidate whose records are read
MAX_RECORD_BYTES = 256 << 10
WAY_NAMES: dict[BuildWay, str] = {
    "light": "light headers",
    "torch": "torch's own build",
    "ready": "built before, not built again",
    "refused": "the candidate does not compile",
}


class BuildPhase(Value, frozen=True, kw_only=True):
    """One step of a build."""

    name: str
    began_s: float  # from the start of the build
    seconds: float


class BuildRecord(Value, frozen=True, kw_only=True):
    """One `load` or `load_inline`, from torch's call to the library."""

    name: str  # of the extension
    key: str  # of everything that went into the library
    way: BuildWay
    reason: str = msgspec.field(default="", name="why")  # why torch built it; "" for other ways
    seconds: float = 0.0
    precompiled: bool = False  # every compiler that could use a precompiled header had one
    binding: str = ""  # "table" or "pybind11"
    remarks: tuple[str, ...] = ()  # of the compiler, on code that loses time
    phases: tuple[BuildPhase, ...] = ()
    # Trusted code may prepare headers for it, if it is plain.
    flag_set: FlagSet = msgspec.field(default=FlagSet(), name="family")

    def write(self, folder: Path) -> None:
        """Write the record into torch's build folder `folder`."""
        own_folder = folder / RECORD_FOLDER
        own_folder.mkdir(parents=True, exist_ok=True)
        (own_folder / RECORD_FILE).write_bytes(msgspec.json.encode(self))


def read_record(folder: Path) -> BuildRecord | None:
    """Return the record in torch's build folder `folder`; None if it has no valid one."""
    try:
        return msgspec.json.decode(
            (folder / RECORD_FOLDER / RECORD_FILE).read_bytes(), type=BuildRecord
        )
    except (OSError, msgspec.DecodeError):
        return None


def remarks_of_builds(extensions: Path) -> tuple[str, ...]:
    """Return the compiler's remarks on what was built in the folders of `extensions`.

    A candidate may have written these files: what is not a small plain file is left out.
    """
    try:
        with os.scandir(extensions) as folders:
            paths = [Path(folder.path) for folder in islice(folders, MAX_READ)]
    except OSError:  # nothing was built
        return ()
    records = [read_record(path) for path in paths if _is_small(path / RECORD_FOLDER / RECORD_FILE)]
    found = [remark for record in records if record is not None for remark in record.remarks]
    return known_remarks(dict.fromkeys(found))


def _is_small(file: Path) -> bool:
    try:
        status = file.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size <= MAX_RECORD_BYTES


class ImportReport(Value, frozen=True, kw_only=True):
    """What the import of one candidate did."""

    seconds: float  # of the import, without that of torch
    error: str = ""
    builds: tuple[BuildRecord, ...] = ()
    results: tuple[str, ...] = ()  # digests of the tensors that the candidate's `results()` returns
    documents: tuple[str, ...] = ()  # docstrings of the built module's functions


class Stopwatch:
    """The stopwatch of one build; phases may overlap."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._phases: list[BuildPhase] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record under `name` how long the body takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            ended = time.monotonic()
            phase = BuildPhase(name=name, began_s=began - self._began, seconds=ended - began)
            with self._lock:
                self._phases.append(phase)

    def seconds(self) -> float:
        """Return the time since the start."""
        return time.monotonic() - self._began

    def phases(self) -> tuple[BuildPhase, ...]:
        """Return the phases, in the order in which they began."""
        with self._lock:
            return tuple(sorted(self._phases, key=lambda phase: phase.began_s))
