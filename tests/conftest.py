"""Shared by all tests: one store of builds, and the mark of tests that run alone."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.evaluator.fastbuild import STORE_VARIABLE, BuildStore

HERE = Path(__file__).parent
# Folders and files of tests that run alone: what they assert depends on measured times, or on
# real candidates that are judged within their time limits.
ALONE = (
    "agents/test_example_pairs.py",
    "evaluator/test_evaluator_hostile.py",
    "evaluator/test_evaluator_timing_laws.py",
    "evaluator/test_task_dependencies.py",
    "tables/test_tables_command.py",
    "test_corpus.py",
    "test_how_to_pages.py",
    "test_installed.py",
    "whole",
)
ALONE_PATHS = tuple(HERE / name for name in ALONE)
_OWN_STORE = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Name one store of builds for every process of the session; a store named by the user stays.

    `make test` names one for all of its processes.
    """
    if not os.environ.get(STORE_VARIABLE):
        config.stash[_OWN_STORE] = os.environ[STORE_VARIABLE] = tempfile.mkdtemp(prefix="builds-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the store of this session."""
    if made := config.stash.get(_OWN_STORE, None):
        shutil.rmtree(made, ignore_errors=True)
        del os.environ[STORE_VARIABLE]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that run alone: `make test` runs them one by one, after all others."""
    for item in items:
        if any(item.path.is_relative_to(path) for path in ALONE_PATHS):
            item.add_marker(pytest.mark.alone)


@pytest.fixture(autouse=True)
def python_signals() -> Iterator[None]:
    """Undo what a command that a test calls in this process does to SIGPIPE.

    `actors.cli.exit_when_reader_closes` lets the kernel end the process with its reader; the HTTP
    server of another test would end the whole session when a client hangs up.
    """
    yield
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


@pytest.fixture(scope="session")
def build_store() -> BuildStore:
    """The store of builds of this test session; the user's cache is not used."""
    return BuildStore(Path(os.environ[STORE_VARIABLE]))
