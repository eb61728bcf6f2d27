"""What all tests share: one store of builds, and which tests need the machine to themselves."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from actors.evaluator.fastbuild import STORE_VARIABLE, BuildStore

HERE = Path(__file__).parent
# Tests that measure times, folder by folder: beside others they would measure those, too.
QUIET = (
    "evaluator",
    "whole",
    "release",
    "agents/test_example_pairs.py",
    "tables/test_tables_command.py",
    "test_corpus.py",
    "test_how_to_pages.py",
    "test_installed.py",
)
QUIET_PATHS = tuple(HERE / name for name in QUIET)
_OWN_STORE = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Name one store of builds for every process of the session; a store that is named stays.

    Before pytest-xdist starts its workers: they inherit the name.
    """
    if not os.environ.get(STORE_VARIABLE):
        config.stash[_OWN_STORE] = os.environ[STORE_VARIABLE] = tempfile.mkdtemp(prefix="builds-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the store of this session."""
    if made := config.stash.get(_OWN_STORE, None):
        shutil.rmtree(made, ignore_errors=True)
        del os.environ[STORE_VARIABLE]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that measure times: `make test` runs them one by one, after the others."""
    for item in items:
        if any(item.path.is_relative_to(path) for path in QUIET_PATHS):
            item.add_marker(pytest.mark.quiet)


@pytest.fixture(scope="session")
def build_store() -> BuildStore:
    """Builds of all tests come from one store that goes with them, not from the user's cache."""
    return BuildStore(Path(os.environ[STORE_VARIABLE]))
