"""Fast builds of all tests come from one store that goes with them, not from the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.evaluator.fastbuild import STORE_VARIABLE, BuildStore


@pytest.fixture(scope="session", autouse=True)
def build_store(tmp_path_factory: pytest.TempPathFactory) -> BuildStore:
    """Name the store for every process that a test starts; a store that is named already stays."""
    if not os.environ.get(STORE_VARIABLE):
        os.environ[STORE_VARIABLE] = str(tmp_path_factory.mktemp("builds"))
    return BuildStore(Path(os.environ[STORE_VARIABLE]))
