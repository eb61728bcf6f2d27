"""The file behind a run on a disk that takes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.coordinator.storage.database import LOCK_NAME, Database, StoreFullError
from protocol.read_only import RUN_DB


@pytest.mark.parametrize("what", [f"{RUN_DB}-wal", LOCK_NAME])
def test_a_store_that_can_not_be_opened_is_tried_again(tmp_path: Path, what: str) -> None:
    """As long as the disk takes nothing it is full, never taken by ourselves; then it opens."""
    (tmp_path / what).mkdir()  # in the way of a file that is needed
    errors = []
    for _ in range(3):
        with pytest.raises(StoreFullError) as error:
            Database(tmp_path)
        errors.append(error)  # held, with all that it holds
    (tmp_path / what).rmdir()
    Database(tmp_path).close()
