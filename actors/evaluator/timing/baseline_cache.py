"""The reference's times, stored from run to run: max-autotune of torch.compile takes minutes.

There is one JSON file for each task, device, torch and measuring method, in the user's cache
folder; only the judge writes it.  A file that can't be read or is of something else counts as
missing, and the times are measured again.  The eager time is stored for people only: candidates
are compared with an eager time that is measured beside them.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec

from protocol.atomic_file import write_atomically
from protocol.values import Device, Task, Value

VERSION = 2  # of the measuring method; files of another version are not used
MAX_BYTES = 1 << 16


class ReferenceBaselines(Value, frozen=True, kw_only=True):
    """Microseconds a call of the task's own module; None: not measured, or it does not compile."""

    eager_us: float
    compile_us: float | None = None
    max_autotune_us: float | None = None


class BaselineFile(Value, frozen=True, kw_only=True):
    """A file's contents: the times, and what they were measured of."""

    version: int
    fingerprint: str
    task: str  # of its source, sha256
    baselines: ReferenceBaselines


def cache_folder(environment: dict[str, str]) -> Path:
    """Return the folder of baselines for the user of `environment`."""
    cache = environment.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    home = Path(environment.get("HOME") or tempfile.gettempdir())
    root = Path(cache) if Path(cache).is_absolute() else home / ".cache"
    return root / "stark-kernels" / "baselines"


class BaselineCache:
    """The baselines of one user's tasks."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, task: Task, device: Device) -> ReferenceBaselines | None:
        """Return what was measured for just this task on just this device."""
        try:
            with self._path(task, device).open("rb") as file:
                entry = msgspec.json.decode(file.read(MAX_BYTES), type=BaselineFile)
        except (OSError, msgspec.DecodeError):
            return None
        wanted = (VERSION, device.fingerprint, task_digest(task))
        if (entry.version, entry.fingerprint, entry.task) != wanted or not _is_sane(
            entry.baselines
        ):
            return None
        return entry.baselines

    def store(self, task: Task, device: Device, baselines: ReferenceBaselines) -> None:
        """Store what was measured; a cache that can't be written costs time, no result."""
        entry = BaselineFile(
            version=VERSION,
            fingerprint=device.fingerprint,
            task=task_digest(task),
            baselines=baselines,
        )
        path = self._path(task, device)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, msgspec.json.encode(entry), private=True)

    def _path(self, task: Task, device: Device) -> Path:
        # The fingerprint holds the versions of torch, CUDA and the driver.
        key = f"{VERSION}\0{device.kind}\0{device.fingerprint}\0{task_digest(task)}"
        return self.root / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.json"


def task_digest(task: Task) -> str:
    """Return what identifies a task's code, under any name."""
    parts = [task.source, *(text for pair in sorted(task.modules.items()) for text in pair)]
    if task.backward:
        parts.append("backward")
    if task.case is not None:
        layout = msgspec.structs.replace(task.case, name="", weight=1.0)
        parts.append(repr(layout))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _is_sane(baselines: ReferenceBaselines) -> bool:
    figures = (baselines.eager_us, baselines.compile_us, baselines.max_autotune_us)
    return all(us is None or (math.isfinite(us) and us > 0) for us in figures)
