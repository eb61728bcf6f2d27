"""`launch.json` in the run folder: how the jobs stand, for people and for the next launcher."""

from __future__ import annotations

from pathlib import Path

import msgspec

from protocol.atomic_file import write_atomically
from protocol.values import Value

FILE_NAME = "launch.json"


class JobRecord(Value, frozen=True, kw_only=True):
    """What is written at each change."""

    words: str = ""
    kind: str = ""
    jobs: dict[str, dict[str, str | int]] = msgspec.field(default_factory=dict)  # not ended yet


def read_record(run_dir: Path) -> JobRecord:
    """Return the last record; an empty one where there is none that can be read."""
    try:
        return msgspec.json.decode((run_dir / FILE_NAME).read_bytes(), type=JobRecord)
    except (OSError, ValueError):
        return JobRecord()


def write_record(run_dir: Path, record: JobRecord) -> None:
    """Write a record whole, and on disk: a job that nobody remembers runs to its wall time."""
    write_atomically(run_dir / FILE_NAME, msgspec.json.encode(record))
