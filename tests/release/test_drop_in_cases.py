"""Laws of a winner's file that was judged in several cases, or with its backward pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from drop_in_samples import TASK, candidate, imported, judged, pair

from actors.evaluator.children.tensors.tensor_bytes import layout_of
from actors.release.composition import drop_in_source
from protocol.release import Judged, Release

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def cases_file(folder: Path) -> Any:
    """Return the drop-in file of a candidate that was judged in three cases."""
    module = imported(TASK, folder)
    first = judged(module)
    more = []
    for rows, width, dtype in ((7, 16, "float32"), (4, 8, "float32"), (4, 16, "bfloat16")):
        kind = getattr(torch, dtype)
        model = module.Model(width).to(kind)
        inputs = [torch.randn(rows, width, dtype=kind) for _ in range(2)]
        more.append(
            Judged(
                device="cpu",
                init=layout_of([width]),
                inputs=layout_of(inputs),
                outputs=layout_of(model(*inputs)),
                state=layout_of(dict(model.state_dict())),
                dtype="" if dtype == "float32" else dtype,
            )
        )
    release = Release(judged=first, more_judged=tuple(more))
    return imported(drop_in_source(TASK, candidate(), release), folder)


@pytest.mark.parametrize(
    ("width", "rows", "dtype", "kernel"),
    [
        (16, 4, torch.float32, True),
        (16, 7, torch.float32, True),
        (8, 4, torch.float32, True),
        (16, 4, torch.bfloat16, True),
        (16, 5, torch.float32, False),
        (8, 7, torch.float32, False),  # rows of one case, width of another
        (16, 7, torch.bfloat16, False),
        (32, 4, torch.float32, False),
    ],
)
def test_kernels_run_for_each_judged_case_and_for_no_mix_of_them(
    tmp_path: Path, width: int, rows: int, dtype: torch.dtype, kernel: bool
) -> None:
    """Constructor, state and inputs have to be those of one and the same case."""
    file = cases_file(tmp_path)
    plain, winner = file.Model(width).to(dtype), file.ModelNew(width).to(dtype)
    # Small whole numbers: no sum is rounded, in halves neither, in whatever order it is made.
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape))
    winner.load_state_dict(plain.state_dict())
    inputs = [torch.randint(-2, 3, (rows, width)).to(dtype) for _ in range(2)]
    with torch.no_grad():
        torch.testing.assert_close(winner(*inputs), plain(*inputs))
        assert kernel is bool(winner.kernel_stats()["kernel"])
        compiled = torch.compile(winner, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(*inputs), plain(*inputs))


def test_a_module_that_changes_its_dtype_changes_its_case(tmp_path: Path) -> None:
    """After `.to(dtype)` the cases of the new dtype count, and no case of the old one."""
    file = cases_file(tmp_path)
    winner = file.ModelNew(16)
    with torch.no_grad():
        winner(torch.randn(4, 16), torch.randn(4, 16))
        winner.to(torch.bfloat16)
        half = [torch.randn(4, 16, dtype=torch.bfloat16) for _ in range(2)]
        winner(*half)
        assert 2 == winner.kernel_stats()["kernel"]
        winner.to(torch.float32)
        winner(torch.randn(7, 16), torch.randn(7, 16))
        assert 3 == winner.kernel_stats()["kernel"]


TRAINED = """
import torch
from torch import nn


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, weight, bias, slope):
        below = x @ weight.t() + bias
        ctx.save_for_backward(x, weight, below)
        ctx.slope = slope
        return torch.relu(below) * slope + y

    @staticmethod
    def backward(ctx, above):
        x, weight, below = ctx.saved_tensors
        inner = above * (below > 0) * ctx.slope
        return inner @ weight, above, inner.t() @ x, inner.sum(0), None


class ModelNew(nn.Module):
    def __init__(self, features, slope=0.5):
        super().__init__()
        self.lin = nn.Linear(features, features)
        self.slope = slope

    def forward(self, x, y):
        return Scaled.apply(x, y, self.lin.weight, self.lin.bias, self.slope)
"""


def test_a_winner_that_was_judged_with_its_backward_pass_trains_with_its_kernels(
    tmp_path: Path,
) -> None:
    """Gradients of the judged inputs and of parameters are the kernels' own; others are plain."""
    first = msgspec.structs.replace(judged(imported(TASK, tmp_path)), gradients=(0,))
    source = drop_in_source(TASK, TRAINED, Release(judged=first))
    plain, winner, (x, y) = pair(imported(source, tmp_path))
    for module in (plain, winner):
        leaf = x.clone().requires_grad_()
        module(leaf, y).square().sum().backward()
        module.seen = leaf.grad
    torch.testing.assert_close(winner.seen, plain.seen)
    for got, expected in zip(winner.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(got.grad, expected.grad)
    assert {"kernel": 1, "plain": 0, "reasons": {}} == winner.kernel_stats()
    winner(x, y.clone().requires_grad_()).sum().backward()  # judged without a gradient of y
    assert 1 == winner.kernel_stats()["plain"]
