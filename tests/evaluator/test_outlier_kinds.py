"""Draws of which a few elements are large, or are no numbers where a module asks for them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from referee_samples import prepared_task

from actors.evaluator.judge import Judge
from protocol.values import Outcome, Task

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {output}

def get_inputs():
    return [torch.{draw}(64, 512)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("kind", "output", "is_used"),
    [
        ("large", "x.softmax(1)", True),
        ("large", "torch.where(x > 50, x.log1p(), x.sin())", True),
        ("large", "x.exp() / (1 + x.exp())", False),  # the module itself overflows
        ("large", "torch.exp(-torch.exp(x))", False),  # on its way to zero
        ("large", "x.masked_fill(x < 0, -torch.inf).softmax(1)", True),  # on all draws
        ("missing", "x.nan_to_num()", True),
        ("missing", "x.nanmean(1)", True),
        ("missing", "torch.where(torch.isfinite(x), x, 0.0)", True),
        ("missing", "torch.where(x > 0, x, 0.0)", False),  # `relu` is right, and has NaN there
        ("missing", "x.argmax(1)", False),
        ("missing", "(x.isnan().sum(), x.tanh())", False),  # NaN in the output
        ("near one", "x.cumprod(1)", True),
        ("near one", "x.softmax(1)", False),
    ],
)
def test_outliers_are_used_where_they_mean_something(
    torch: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    output: str,
    *,
    is_used: bool,
) -> None:
    from actors.evaluator.children import input_kinds
    from actors.evaluator.ipc.referee_orders import TryInputKind

    monkeypatch.chdir(tmp_path)  # a task's file is written where the process works
    task = prepared_task(TASK.format(output=output, draw="randn"))
    assert input_kinds.accepts(task, TryInputKind(kind=kind, seed=3)) is is_used


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("kind", ["large", "missing", "near one", "spikes"])
def test_outliers_keep_the_dtype(torch: ModuleType, kind: str, dtype: str) -> None:
    from actors.evaluator.children.input_variants import vary

    drawn = torch.randn(64, 64).to(getattr(torch, dtype))
    varied = vary(drawn, kind, 3)
    assert varied.dtype is drawn.dtype
    if kind == "near one":
        assert bool(((varied.double().abs() - 1).abs() < 0.02).all())
        assert torch.equal(varied < 0, drawn < 0)
        return
    assert 0 < int((varied != drawn).sum()) < 100
    if kind == "large":
        assert bool(varied.float().exp().isinf().any())


@pytest.mark.parametrize(
    ("draw", "output", "instead"),
    [
        ("randn", "torch.softmax(x, 1)", "x.exp() / x.exp().sum(1, keepdim=True)"),
        ("rand", "torch.logsumexp(x, 1)", "x.exp().sum(1).log()"),
        ("randn", "torch.relu(x.nan_to_num())", "torch.relu(x)"),
        ("randn", "x.nanmean(1)", "x.mean(1)"),
        ("rand", "x.cumprod(1)", "torch.cat([x[:, :99].cumprod(1), 0 * x[:, 99:]], 1)"),
    ],
)
def test_what_does_nothing_on_ordinary_values_may_not_be_left_out(
    patient_judge: Judge, draw: str, output: str, instead: str
) -> None:
    """Each was correct, and up to 14 times as fast."""
    candidate = TASK.format(output=instead, draw=draw).replace("class Model", "class ModelNew")
    task = Task(name="outliers", source=TASK.format(output=output, draw=draw))
    verdict = patient_judge.judge(task, candidate)
    assert verdict.verdict is Outcome.WRONG, verdict
