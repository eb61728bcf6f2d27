import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # fake_worker, fake_run

from in_process_run import InProcessRun, MakeRun

from actors import failpoints
from actors.coordinator import coordinator
from actors.coordinator.gateway import directive_spool


@pytest.fixture
def make_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeRun]:
    """Return a function that makes a run; all of them are closed after the test."""
    monkeypatch.setattr(coordinator, "RETIRE_S", 0.0)
    monkeypatch.setattr(directive_spool, "SCAN_S", 0.0)
    made: list[InProcessRun] = []

    def make(**options: object) -> InProcessRun:
        made.append(InProcessRun(tmp_path / f"run-{len(made)}", **options))
        return made[-1]

    yield make
    failpoints._armed.clear()
    for run in made:
        run.close()
