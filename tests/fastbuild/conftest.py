"""One toolkit for all tests of this room: half a minute, once."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch misses NumPy, once, when it is imported
    import torch  # noqa: F401

from actors.evaluator.fastbuild.family import Family
from actors.evaluator.fastbuild.store import Store
from actors.evaluator.fastbuild.toolkit import Toolkit
from actors.evaluator.fastbuild.workshop import prepare


@pytest.fixture(scope="session")
def store(build_store: Store) -> Path:
    return build_store.toolkits


@pytest.fixture(scope="session")
def toolkit(store: Path) -> Toolkit:
    return prepare(store, [Family()])
