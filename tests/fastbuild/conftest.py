"""One toolkit for all tests of fast builds: it takes half a minute, once."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's import warns that NumPy is missing
    import torch  # noqa: F401

from actors.evaluator.fastbuild.headers.toolkit import Toolkit
from actors.evaluator.fastbuild.request.flag_set import FlagSet
from actors.evaluator.fastbuild.store.build_store import BuildStore
from actors.evaluator.fastbuild.toolkit_builder import prepare_toolkit


@pytest.fixture(scope="session")
def store(build_store: BuildStore) -> Path:
    return build_store.toolkits


@pytest.fixture(scope="session")
def toolkit(store: Path) -> Toolkit:
    return prepare_toolkit(store, [FlagSet()])
