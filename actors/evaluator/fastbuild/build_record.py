"""What a build was: which way it went, why, and what took how long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from actors.evaluator.fastbuild.flag_set import FlagSet
from protocol.values import Value

BuildWay = Literal["light", "torch", "ready", "refused"]
RECORD_FOLDER = "stark"  # ours inside torch's build folder
FILE_NAME = "build.json"
WAY_NAMES: dict[BuildWay, str] = {
    "light": "light headers",
    "torch": "torch's own build",
    "ready": "built before, taken as it was",
    "refused": "the candidate does not compile",
}


class BuildPhase(Value, frozen=True, kw_only=True):
    """One step of a build."""

    name: str
    began_s: float  # from the start of the build
    seconds: float


class BuildRecord(Value, frozen=True, kw_only=True):
    """One `load` or `load_inline`, from torch's order to the library."""

    name: str  # the extension's
    key: str  # of everything that went into it
    way: BuildWay
    why: str = ""  # for the torch way: why not the light one
    seconds: float = 0.0
    precompiled: bool = False  # every compiler that could use a precompiled header had one
    binding: str = ""  # "table" or "pybind11"
    phases: tuple[BuildPhase, ...] = ()
    family: FlagSet = FlagSet()  # of its flags; trusted code may prepare for plain ones

    def write(self, folder: Path) -> None:
        """Leave it in torch's build folder `folder`."""
        place = folder / RECORD_FOLDER
        place.mkdir(parents=True, exist_ok=True)
        (place / FILE_NAME).write_bytes(msgspec.json.encode(self))


def read_record(folder: Path) -> BuildRecord | None:
    """Return what the last build in torch's build folder `folder` left, if it makes sense."""
    try:
        return msgspec.json.decode(
            (folder / RECORD_FOLDER / FILE_NAME).read_bytes(), type=BuildRecord
        )
    except (OSError, msgspec.DecodeError):
        return None


class Stopwatch:
    """The stopwatch of one build; phases may overlap."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._phases: list[BuildPhase] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Note what the body takes under `name`."""
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
