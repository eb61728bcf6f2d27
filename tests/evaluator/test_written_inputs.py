"""What a module writes to its inputs is a result of its calls: a cache that its caller owns."""

from __future__ import annotations

from pathlib import Path

import pytest
import special_corpora

from actors.evaluator.judge import Judge
from protocol.values import Task

CANDIDATES = special_corpora.candidates(
    "written_inputs", ("in_cache", "cache_left", "cache_left_late")
)
SMALL_STEPS = special_corpora.candidates("small_steps", ("other_order", "step_left"))


@pytest.mark.parametrize("path", CANDIDATES)
def test_a_cache_of_the_caller_is_written(patient_judge: Judge, path: Path) -> None:
    """A winner that left it as it was passed all checks, and would have been shipped."""
    reason = special_corpora.rightly_judged(patient_judge, "written_inputs", path)
    assert not reason or "input 1, to which the module writes" in reason
    assert ("in a timed call" in reason) == (path.stem == "cache_left_late")


@pytest.mark.parametrize("path", SMALL_STEPS)
def test_a_small_step_is_made(patient_judge: Judge, path: Path) -> None:
    """A step of 1e-4 of the weights was right if it was not made, and 1.7 times as fast."""
    reason = special_corpora.rightly_judged(patient_judge, "small_steps", path)
    assert not reason or "to which the module writes (what it adds)" in reason


STATEFUL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(64, 64)
        self.register_buffer("mean", torch.randn(64))
        self.calls = 0

    def forward(self, x, cache):
        self.mean.lerp_(x.mean(0), 0.1)
        {write}
        return x + self.mean

def get_inputs():
    return [torch.randn(128, 64), torch.randn(128, 64)]

def get_init_inputs():
    return []
"""
WRITE = "cache.copy_(torch.tanh(self.lin(x) + self.mean))"


@pytest.mark.parametrize(
    ("write", "is_right"),
    [
        ("torch.add(self.lin(x), self.mean, out=cache).tanh_()", True),
        (f"self.calls += 1; self.calls < 14 and {WRITE}", False),
    ],
)
def test_what_is_written_beside_a_state_is_compared_when_timed(
    patient_judge: Judge, write: str, *, is_right: bool
) -> None:
    """One that did not write to it after the checks was 7 times as fast."""
    candidate = STATEFUL.format(write=write).replace("class Model", "class ModelNew")
    task = Task(name="stateful", source=STATEFUL.format(write=WRITE))
    verdict = patient_judge.judge(task, candidate)
    assert verdict.is_correct is is_right, verdict
    if not is_right:
        assert "in a timed call" in verdict.reason
        assert "input 1, to which the module writes" in verdict.reason


ADAM = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("m", torch.zeros(64, 64))
        self.register_buffer("v", torch.zeros(64, 64))

    def forward(self, p, g):
        self.calls += 1
        self.m.lerp_(g, 0.1)
        self.v.mul_(0.999).addcmul_(g, g, value=0.001)
        m, v = self.m / (1 - 0.9**self.calls), self.v / (1 - 0.999**self.calls)
        p.sub_(1e-3 * m / (v.sqrt() + 1e-8))
        return p.norm()

def get_inputs():
    return [torch.randn(64, 64), torch.randn(64, 64)]

def get_init_inputs():
    return []
"""


def test_a_step_that_follows_from_a_state_is_that_of_the_state(patient_judge: Judge) -> None:
    """The norm of the parameters shows nothing of it, and the module's own text was wrong."""
    candidate = ADAM.replace("class Model", "class ModelNew")
    verdict = patient_judge.judge(Task(name="adam", source=ADAM), candidate)
    assert verdict.is_correct, verdict
