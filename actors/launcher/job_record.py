"""`launch.json` in the run folder: the state of the jobs, for users and for the next launcher."""

from __future__ import annotations

from pathlib import Path

import msgspec

from protocol.atomic_file import write_atomically
from protocol.values import Value

FILE_NAME = "launch.json"


class JobRecord(Value, frozen=True, kw_only=True):
    """The content of the file, written at each change."""

    words: str = ""  # the summary for users
    kind: str = ""
    jobs: dict[str, dict[str, str | int]] = msgspec.field(default_factory=dict)  # not ended yet


def read_record(run_dir: Path) -> JobRecord:
    """Return the last record; an empty one where it can't be read."""
    try:
        return msgspec.json.decode((run_dir / FILE_NAME).read_bytes(), type=JobRecord)
    except (OSError, ValueError):
        return JobRecord()


def write_record(run_dir: Path, record: JobRecord) -> None:
    """Write a record completely and to the disk: a forgotten job runs to its wall time."""
    write_atomically(run_dir / FILE_NAME, msgspec.json.encode(record))
