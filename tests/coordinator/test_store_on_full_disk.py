"""The file `run.db` on a full disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.coordinator.storage.database import LOCK_NAME, Database, StoreFullError
from protocol.run_db import RUN_DB


@pytest.mark.parametrize("file_name", [f"{RUN_DB}-wal", LOCK_NAME])
def test_a_store_that_can_not_be_opened_is_tried_again(tmp_path: Path, file_name: str) -> None:
    """Every failed try reports a full disk, not a store in use; then the store opens."""
    (tmp_path / file_name).mkdir()  # blocks a file that is needed
    errors = []
    for _ in range(3):
        with pytest.raises(StoreFullError) as error:
            Database(tmp_path)
        errors.append(error)  # kept alive, with the objects in its traceback
    (tmp_path / file_name).rmdir()
    Database(tmp_path).close()
