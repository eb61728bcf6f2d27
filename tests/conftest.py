"""Fast builds of all tests come from one store that goes with them, not from the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.evaluator.fastbuild.store import NAMED, Store


@pytest.fixture(scope="session", autouse=True)
def build_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Name the store for every process that a test starts; a store that is named already stays."""
    if not os.environ.get(NAMED):
        os.environ[NAMED] = str(tmp_path_factory.mktemp("builds"))
    return Store(Path(os.environ[NAMED]))
