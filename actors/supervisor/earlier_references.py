"""The measured references of an earlier run, for `--references RUN`."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from actors.cli import UsageError
from actors.supervisor.cli.preflight import TaskFile
from actors.supervisor.reporting.run_data import run_folder_integrity
from protocol import settings as settings_file
from protocol.measured_references import MeasuredReference
from protocol.settings import Settings
from protocol.values import Reference

FLAG = "--references"


def earlier_references(
    run: Path | None, settings: Settings, tasks: Sequence[TaskFile]
) -> tuple[MeasuredReference, ...]:
    """Return what `run` has measured of these tasks; raise UsageError where that is nothing.

    A task that `run` has not measured is measured by an evaluator, as without the flag.
    """
    if run is None:
        return ()
    try:
        stored = run_folder_integrity.check_readable(run).tasks
        precision = settings_file.read(run).rules.precision
        found = _measured(run)
    except (ValueError, sqlite3.DatabaseError) as error:
        raise UsageError(f"{FLAG} {run}: {error}") from error
    sources = {task.source for task in tasks}
    references = tuple(
        MeasuredReference(task=task, reference=found[task.name], precision=precision)
        for task in stored
        if task.name in found and task.source in sources and task.device == settings.device
    )
    if not references or precision != settings.rules.precision:
        raise UsageError(
            f"{FLAG} {run}: it has measured none of these tasks on --device {settings.device} with"
            f" --precision {settings.rules.precision}: leave {FLAG} out, and an evaluator measures"
        )
    return references


def _measured(run: Path) -> dict[str, Reference]:
    query = "SELECT name, reference FROM task WHERE reference IS NOT NULL"
    with closing(run_folder_integrity.open_read_only(run)) as database:
        return {
            name: msgspec.msgpack.decode(blob, type=Reference)
            for name, blob in database.execute(query)
        }
