"""References that an earlier run has measured: taken before a task's first work is queued."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from actors.coordinator.storage.store import Store
from protocol import measured_references
from protocol.settings import Settings
from protocol.values import Reference, Task


def take_references(
    run_dir: Path,
    settings: Settings,
    tasks: Sequence[Task],
    store: Store,
    record_event: Callable[[str, str, str], None],
) -> None:
    """Record the references of tasks that have none yet; `record_event`: (what, subject, detail).

    A candidate is timed in turn with its reference, so its speed-up is not of the earlier run.
    """
    known = measured_references.read(run_dir)
    for task in tasks:
        found = [one.reference for one in known if one.is_of(task, settings.rules.precision)]
        if found and store.reference(task.name) is None:
            store.set_reference(task.name, _as_of_now(found[0], settings), time.time())
            record_event("reference", task.name, "taken from an earlier run")


def _as_of_now(reference: Reference, settings: Settings) -> Reference:
    """Return the reference for a run that has decided nothing yet and wants its own baselines."""
    lacks_baselines = reference.compile_us is None and not reference.baselines_note
    return replace(
        reference,
        baselines_pending=lacks_baselines and settings.rules.baselines == "all",
        baselines_decided=0,
    )
