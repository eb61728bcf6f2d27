"""Each planted winner is found by the check of the use in which it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from drop_in_samples import candidate, drop_in

from actors.evaluator.children.release_checks import gpu_release_checks
from protocol.release import Limit

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

GLOBAL_WEIGHT = candidate(
    before="kept = {}",
    body='weight = kept.setdefault("weight", weight.clone())',
)
SHARED_BUFFER = candidate(
    before="import time\nroom = torch.empty(4, 16)",
    body="room.copy_(x); time.sleep(0.002); x = room.clone()",
)
ADDRESS = candidate(
    before="import ctypes",
    construct="self.first = self.lin.weight.detach(); self.kept = self.first.data_ptr()",
    body="w = weight.clone(); ctypes.memmove(w.data_ptr(), self.kept, w.nbytes); weight = w",
)
WITHOUT_DROPOUT = candidate()  # which evaluation does not need


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (GLOBAL_WEIGHT, "second instance"),
        (SHARED_BUFFER, "threads"),
        (ADDRESS, "fresh process"),
        (WITHOUT_DROPOUT, "other mode"),
    ],
)
def test_a_planted_winner_is_found(tmp_path: Path, source: str, name: str) -> None:
    """Global weights, a shared buffer, a replaced tensor's address, a mode left out."""
    found = gpu_release_checks.run_check(drop_in(tmp_path, source), "cpu", name)
    assert (False, False) == (found.passed, found.skipped)
    assert found.reason


@pytest.mark.parametrize(
    ("source", "limit"),
    [
        (GLOBAL_WEIGHT, "second instance"),
        (SHARED_BUFFER, "threads"),
        (WITHOUT_DROPOUT, "other mode"),
    ],
)
def test_a_limit_mends_what_was_found(tmp_path: Path, source: str, limit: Limit) -> None:
    """With its limit the file takes the plain forward there, and the kernels elsewhere."""
    file = drop_in(tmp_path, source, limits=(limit,))
    for name in ("fresh process", limit):
        found = gpu_release_checks.run_check(file, "cpu", name)
        assert found.passed, f"{name}: {found.reason}"


@pytest.mark.parametrize(
    "name",
    [
        *("fresh process", "gradients", "state dict", "deepcopy", "pickle", "other batch"),
        *("non contiguous", "autocast", "second instance", "threads", "export", "jit trace"),
        "vmap",
    ],
)
def test_an_honest_winner_passes(tmp_path: Path, name: str) -> None:
    """A candidate that is right without gradients is a drop-in, by the guard around it."""
    found = gpu_release_checks.run_check(drop_in(tmp_path, candidate()), "cpu", name)
    assert found.passed, found.reason


def test_what_needs_a_card_says_so(tmp_path: Path) -> None:
    """A check that can't be made is neither passed nor failed."""
    found = gpu_release_checks.run_check(drop_in(tmp_path, candidate()), "cpu", "CUDA graph")
    assert (True, "there is no card") == (found.skipped, found.reason)
