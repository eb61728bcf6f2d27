"""`references.msgpack` of a run folder: references that an earlier run has measured.

`--references RUN` writes it before the run begins; the coordinator takes from it what fits.  The
file travels with the folder, the earlier run need not.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from protocol.atomic_file import write_atomically
from protocol.settings import Precision
from protocol.values import Reference, Task, Value

FILE_NAME = "references.msgpack"


class MeasuredReference(Value, frozen=True, kw_only=True):
    """One task of an earlier run, with its reference."""

    task: Task
    reference: Reference
    precision: Precision = "task"  # of the earlier run's rules

    def is_of(self, task: Task, precision: Precision) -> bool:
        """Whether the reference of `task` would be measured in the same way.

        The name and the backends of candidates are not part of a reference.
        """
        names = {"name": "", "backend": "cpp", "other_backends": ()}
        return self.precision == precision and replace(self.task, **names) == replace(task, **names)


def write(run_dir: Path, references: tuple[MeasuredReference, ...]) -> None:
    """Write the file into a run folder."""
    write_atomically(run_dir / FILE_NAME, msgspec.msgpack.encode(references))


def read(run_dir: Path) -> tuple[MeasuredReference, ...]:
    """Return the content of the file; () without one that can be used: evaluators measure then."""
    try:
        content = (run_dir / FILE_NAME).read_bytes()
        return msgspec.msgpack.decode(content, type=tuple[MeasuredReference, ...])
    except (OSError, msgspec.DecodeError):
        return ()
