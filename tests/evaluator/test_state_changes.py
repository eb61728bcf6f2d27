"""What calls add to a state is compared, not only what the state is then."""

from __future__ import annotations

import pytest

from actors.evaluator.judge import Judge
from protocol.values import Outcome, Task

AVERAGED = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(256, 256)
        self.register_buffer("average", 0.05 + 0.05 * torch.rand(256, 256))

    def forward(self, x):
        with torch.no_grad():
            self.average.mul_(0.99999).add_(self.lin.weight, alpha=0.00001)
        return self.lin(x)

def get_inputs():
    return [torch.randn(8, 256)]

def get_init_inputs():
    return []
"""
STEP = "self.average.mul_(0.99999).add_(self.lin.weight, alpha=0.00001)"


@pytest.mark.parametrize(
    ("instead", "is_right"),
    [
        ("self.average.lerp_(self.lin.weight, 0.00001)", True),
        ("pass", False),
    ],
)
def test_an_average_that_follows_slowly_has_to_follow(
    patient_judge: Judge, instead: str, *, is_right: bool
) -> None:
    """Each call changes less than the state may be off by: it was left as it was."""
    candidate = AVERAGED.replace("class Model", "class ModelNew").replace(STEP, instead)
    verdict = patient_judge.judge(Task(name="average", source=AVERAGED), candidate)
    if is_right:
        assert verdict.is_correct, verdict
    else:
        assert verdict.verdict is Outcome.WRONG, verdict
        assert " calls: buffer average (what it adds)" in verdict.reason
        assert "timed" not in verdict.reason


@pytest.mark.long
@pytest.mark.parametrize("rate", ["0.00001", "0.01"])
def test_a_slow_average_that_outputs_read_is_a_state(patient_judge: Judge, rate: str) -> None:
    """Two calls change it by less than outputs show, and the module's own text was wrong."""
    difference = "self.lin(x) - torch.nn.functional.linear(x, self.average)"
    source = AVERAGED.replace("self.lin(x)", difference)
    source = source.replace("0.99999", f"(1 - {rate})").replace("0.00001", rate)
    candidate = source.replace("class Model", "class ModelNew")
    verdict = patient_judge.judge(Task(name="average", source=source), candidate)
    assert verdict.is_correct, verdict
