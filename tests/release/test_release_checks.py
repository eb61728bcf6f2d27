"""Laws of the release checks: the check of a use fails a winner that is wrong in this use."""

from __future__ import annotations

from pathlib import Path

import pytest
from drop_in_samples import TASK, candidate, drop_in

from actors.evaluator.children.release_checks import (
    card_construction,
    gpu_release_checks,
    release_comparison,
    tensor_agreement,
)
from actors.evaluator.children.tensors import random_fills
from actors.evaluator.children.tensors.random_fills import LargeFillsOnCard
from protocol.release import Limit

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

GLOBAL_WEIGHT = candidate(
    before="cache = {}",
    body='weight = cache.setdefault("weight", weight.clone())',
)
SHARED_BUFFER = candidate(
    before="import time\nbuffer = torch.empty(4, 16)",
    body="buffer.copy_(x); time.sleep(0.002); x = buffer.clone()",
)
ADDRESS = candidate(
    before="import ctypes",
    construct="self.first = self.lin.weight.detach(); self.address = self.first.data_ptr()",
    body="w = weight.clone(); ctypes.memmove(w.data_ptr(), self.address, w.nbytes); weight = w",
)
WITHOUT_DROPOUT = candidate()  # right in evaluation mode, wrong in training


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (GLOBAL_WEIGHT, "second instance"),
        (SHARED_BUFFER, "threads"),
        (ADDRESS, "fresh process"),
        (WITHOUT_DROPOUT, "other mode"),
    ],
)
def test_a_check_fails_the_winner_that_is_wrong_in_its_use(
    tmp_path: Path, source: str, name: str
) -> None:
    """Global weights, a shared buffer, a stale address, a missing mode: one check finds each."""
    checked = gpu_release_checks.run_check(drop_in(tmp_path, source), "cpu", name)
    assert (False, False) == (checked.passed, checked.skipped)
    assert checked.reason


@pytest.mark.parametrize(
    ("source", "limit"),
    [
        (GLOBAL_WEIGHT, "second instance"),
        (SHARED_BUFFER, "threads"),
        (WITHOUT_DROPOUT, "other mode"),
    ],
)
def test_with_its_limit_a_wrong_winner_passes(tmp_path: Path, source: str, limit: Limit) -> None:
    """The file runs the plain forward in the limited use, and the kernels in the others."""
    for name in ("fresh process", limit):
        file = drop_in(tmp_path, source, limits=(limit,))  # as in a process of its own
        checked = gpu_release_checks.run_check(file, "cpu", name)
        assert checked.passed, f"{name}: {checked.reason}"


@pytest.mark.parametrize(
    "name",
    [
        *("fresh process", "gradients", "state dict", "deepcopy", "pickle", "other batch"),
        *("non contiguous", "autocast", "second instance", "threads", "export", "jit trace"),
        "vmap",
    ],
)
def test_a_correct_winner_passes(tmp_path: Path, name: str) -> None:
    """The guard makes a drop-in of a candidate that is right only without gradients."""
    checked = gpu_release_checks.run_check(drop_in(tmp_path, candidate()), "cpu", name)
    assert checked.passed, checked.reason


STATISTICS_TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(16)

    def forward(self, x):
        return torch.relu(self.norm(x))

def get_inputs():
    return [torch.randn(4, 16)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    "name",
    [
        *("fresh process", "gradients", "state dict", "deepcopy", "pickle", "other batch"),
        *("non contiguous", "autocast", "other mode", "second instance", "compile"),
    ],
)
def test_a_correct_winner_with_running_statistics_passes(tmp_path: Path, name: str) -> None:
    """Each call changes the state of the module that is called, and of no other."""
    file = drop_in(
        tmp_path, STATISTICS_TASK.replace("class Model", "class ModelNew"), STATISTICS_TASK
    )
    checked = gpu_release_checks.run_check(file, "cpu", name)
    assert checked.passed, checked.reason


@pytest.mark.parametrize("name", ["fresh process", "state dict", "deepcopy", "pickle"])
def test_values_of_the_card_change_no_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The kernels run in a large module whose first values come from the card, here the host.

    Its guard constructs two more modules in the same way; a wrong winner is found all the same.
    """
    fills: list[bool] = []

    def fills_of_host(*, on_card: bool) -> LargeFillsOnCard:
        fills.append(on_card)
        return LargeFillsOnCard("cpu")

    monkeypatch.setattr(random_fills, "LARGE_FILL", 1)
    for module in (card_construction, release_comparison):
        monkeypatch.setattr(module, "large_fills", fills_of_host)
    for source in (candidate(), candidate(body="x = x + 1")):
        file = drop_in(tmp_path, source)
        checked = gpu_release_checks.run_check(file, "cpu", name, fills_on_card=True)
        assert checked.passed is (source == candidate())
    assert len(fills) > 4
    assert all(fills)


def test_a_gpu_check_is_skipped_on_a_host(tmp_path: Path) -> None:
    """A check that can't run is neither passed nor failed."""
    checked = gpu_release_checks.run_check(drop_in(tmp_path, candidate()), "cpu", "CUDA graph")
    assert (True, "there is no GPU") == (checked.skipped, checked.reason)


# Means of normalised values: rounding alone decides every output.
MEANS = TASK.replace(
    "self.drop(torch.relu(self.lin(x)) * self.slope) + y",
    "nn.functional.layer_norm(self.lin(x) + y, [16]).mean(-1)",
)
MEANS_IN_FLOAT64 = candidate(body="return means(x @ weight.t() + bias + y)").replace(
    "import torch\n",
    """import torch
def means(x):
    x = x.double()
    return ((x - x.mean(-1, True)) / (x.var(-1, False, True) + 1e-5).sqrt()).mean(-1).float(){off}
""",
    1,
)


@pytest.mark.parametrize("name", ["fresh process", "gradients", "second instance", "threads"])
@pytest.mark.parametrize(("off", "passes"), [("", True), (" + 1e-6", False)])
def test_what_rounding_leaves_is_compared_by_its_error(
    tmp_path: Path, name: str, off: str, passes: bool
) -> None:
    """Before: "off by 2.14e-08, the largest is 2.14e-08" ended a right winner's confirmation."""
    file = drop_in(tmp_path, MEANS_IN_FLOAT64.replace("{off}", off), MEANS)
    checked = gpu_release_checks.run_check(file, "cpu", name)
    without_effect = name == "gradients"  # those of the plain forward: a constant adds nothing
    assert checked.passed is (passes or without_effect), checked.reason


def test_a_tensor_within_the_tolerance_needs_no_second_look() -> None:
    """One output may be as judged, another what rounding leaves: each is compared by itself."""
    torch = pytest.importorskip("torch")
    expected = [torch.ones(4), torch.full((4,), 2e-8)]
    exact = [torch.ones(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)]
    tensor_agreement.require_same(
        [torch.ones(4) + 1e-4, torch.zeros(4)], expected, "", lambda: exact
    )
    with pytest.raises(tensor_agreement.ReleaseCheckError):
        tensor_agreement.require_same([torch.ones(4), torch.ones(4)], expected, "", lambda: exact)


MASKED_TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(16, 16)

    def forward(self, x, mask):
        {refused}
        return self.lin(x).masked_fill(~mask, -1.0)

def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(16, 16), {mask}]

def get_init_inputs():
    return []
"""
MASK = "torch.ones(16, 16, dtype=torch.bool).tril()"
DRAWN_MASK = "torch.rand(16, 16) > 0.5"
REFUSED = "if not torch.equal(mask, torch.ones_like(mask).tril()): raise ValueError('no such mask')"


@pytest.mark.parametrize(
    ("mask", "refused", "built_in", "outcome"),
    [
        (MASK, "pass", "mask", "passed"),
        (MASK, "pass", MASK, "failed"),
        (MASK, REFUSED, MASK, "skipped"),
        (DRAWN_MASK, "pass", "mask", "skipped"),
    ],
)
def test_an_input_that_is_the_same_in_each_draw_gets_other_values(
    tmp_path: Path, mask: str, refused: str, built_in: str, outcome: str
) -> None:
    """A winner with its values built in passed all checks, and was wrong for a user's mask.

    What the module itself refuses is not tried, and neither is an input that is drawn.
    """
    task = MASKED_TASK.format(mask=mask, refused=refused)
    winner = task.replace("class Model", "class ModelNew").replace("~mask", f"~({built_in})")
    checked = gpu_release_checks.run_check(drop_in(tmp_path, winner, task), "cpu", "fixed inputs")
    how = "passed" if checked.passed else "skipped" if checked.skipped else "failed"
    assert outcome == how, checked.reason
    if outcome == "failed":
        assert "input 1, which is the same in each draw" in checked.reason
