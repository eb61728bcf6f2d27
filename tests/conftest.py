"""Shared by all tests: the settings of properties, and one store of builds."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from actors.evaluator.fastbuild import STORE_VARIABLE, BuildStore

# A busy machine is slow to draw and to run an example, and each run draws others.
settings.register_profile(
    "tests", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")


@pytest.fixture(autouse=True)
def python_signals() -> Iterator[None]:
    """Undo what a command that a test calls in this process does to SIGPIPE.

    `actors.cli.exit_when_reader_closes` lets the kernel end the process with its reader; the HTTP
    server of another test would end the whole session when a client hangs up.
    """
    yield
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


@pytest.fixture(scope="session", autouse=True)
def build_store(tmp_path_factory: pytest.TempPathFactory) -> BuildStore:
    """Name one store for every process that a test starts, not the user's; a named one stays."""
    if not os.environ.get(STORE_VARIABLE):
        os.environ[STORE_VARIABLE] = str(tmp_path_factory.mktemp("builds"))
    return BuildStore(Path(os.environ[STORE_VARIABLE]))
