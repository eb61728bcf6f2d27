"""References of an earlier run: what fits is taken, and everything else is measured."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from actors.coordinator.earlier_references import take_references
from actors.coordinator.storage.database import Database
from actors.coordinator.storage.store import Store
from protocol import measured_references
from protocol.measured_references import FILE_NAME, MeasuredReference
from protocol.settings import JudgeRules, Settings
from protocol.values import Reference, Task, TaskCase

TASK = Task(name="t", source="the reference")
EARLIER = MeasuredReference(
    task=replace(TASK, name="u", backend="cuda"),
    reference=Reference(eager_us=10.0, baselines_pending=True, baselines_decided=7),
)


def taken(folder: Path, settings: Settings | None = None) -> Reference | None:
    """Return the reference that a run with `TASK` begins with."""
    with closing(Database(folder)) as database:
        store = Store(database)
        store.add_task(TASK, 3)
        take_references(folder, settings or Settings(), [TASK], store, lambda *_: None)
        database.commit()
        return store.reference("t")


def test_a_reference_of_the_same_text_is_taken(tmp_path: Path) -> None:
    """Its name and the backend of its candidates may differ; this run has decided nothing."""
    measured_references.write(tmp_path, (EARLIER,))
    assert taken(tmp_path) == Reference(eager_us=10.0)
    wants_all = Settings(rules=JudgeRules(baselines="all"))
    (tmp_path / "b").mkdir()
    measured_references.write(tmp_path / "b", (EARLIER,))
    assert taken(tmp_path / "b", wants_all) == Reference(eager_us=10.0, baselines_pending=True)


@pytest.mark.parametrize(
    "other",
    [
        replace(EARLIER, task=replace(TASK, source="another")),
        replace(EARLIER, task=replace(TASK, modules={"m.py": ""})),
        replace(EARLIER, task=replace(TASK, cases=(TaskCase(name="small"),))),
        replace(EARLIER, task=replace(TASK, backward=True)),
        replace(EARLIER, task=replace(TASK, device="cuda")),
        replace(EARLIER, precision="bfloat16"),
    ],
)
def test_what_would_be_measured_otherwise_is_not_taken(
    tmp_path: Path, other: MeasuredReference
) -> None:
    """A speed-up against another task's time would be shown to models and users."""
    measured_references.write(tmp_path, (other,))
    assert taken(tmp_path) is None


def test_a_reference_of_this_run_stays(tmp_path: Path) -> None:
    """A resumed run keeps what it knows; a damaged file is as none."""
    measured_references.write(tmp_path, (EARLIER,))
    assert taken(tmp_path) is not None
    (tmp_path / FILE_NAME).write_bytes(b"\xc1")
    assert taken(tmp_path) == Reference(eager_us=10.0)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / FILE_NAME).write_bytes(b"\xc1")
    assert taken(tmp_path / "c") is None
