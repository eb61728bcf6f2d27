"""Tasks whose outputs follow from a state that calls change: both sides are given that state."""

from __future__ import annotations

import pytest
import special_corpora
from corpus.scene import is_credited

from actors.evaluator.judge import Judge
from protocol.values import Outcome, Task, Verdict


@pytest.mark.parametrize(
    "name",
    [
        "honest/in_place",
        "hostile/outputs_left_out_late",
        "hostile/state_when_asked",
        "hostile/state_set_to_nan",
        "hostile/state_set_too_large",
        "hostile/state_at_the_limit",
    ],
)
def test_outputs_that_follow_from_a_running_state_are_compared_when_timed(
    patient_judge: Judge, name: str
) -> None:
    """One that left them out was 50 times as fast; one that left the state for later, 6.7 times.

    One that set its state to NaN, and returned NaN, was 54 times as fast: both sides are given it.
    """
    task = Task(name="running_state", source=special_corpora.task_source("running_state"))
    path = special_corpora.CORPORA / "running_state" / f"{name}.py"
    verdict = patient_judge.judge(task, path.read_text(encoding="utf-8"))
    assert isinstance(verdict, Verdict)
    if name.startswith("honest"):
        assert verdict.is_correct, verdict
    elif name.endswith("asked"):
        assert not is_credited(verdict), verdict
    else:
        assert verdict.verdict is Outcome.WRONG, verdict
        assert "timed call" in verdict.reason


KEPT = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.{begin})
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    {decorator}
    def forward(self, x):
        {step}
        self.calls += 1
        return {output}

def get_inputs():
    return [torch.randn(64)]

def get_init_inputs():
    return []
"""
KEPT_STATES = {
    "an_input": ("zeros(64)", "", "y = x + self.kept; self.kept = x.clone()", "y"),
    "an_output": ("zeros(64)", "", "self.kept = torch.tanh(x + self.kept)", "self.kept"),
    "inference": (
        "zeros(64)",
        "@torch.inference_mode()",
        "self.kept = self.kept * 0.9 + x",
        "self.kept * 2",
    ),
    "broadcast": (
        "zeros(64)",
        "",
        "self.kept = (self.kept * 0.5 + x.mean()).mean().expand(64).clone()",
        "self.kept + x",
    ),
    "a_sum": ("zeros(64)", "", "self.kept += x", "self.kept / (1 + self.calls)"),
    "a_ring": (
        "zeros(16, 64)",
        "",
        "self.kept[self.calls % 16] = x",
        "torch.softmax(self.kept @ x / 8, 0) @ self.kept",
    ),
    "a_maximum": (
        "full((64,), float('-inf'))",
        "",
        "self.kept = torch.maximum(self.kept, x)",
        "x - self.kept",
    ),
}


@pytest.mark.parametrize("name", KEPT_STATES)
def test_a_state_of_any_kind_is_given_to_both_sides(patient_judge: Judge, name: str) -> None:
    """Some can't be written to where they lie: a broadcast, one that inference mode has made."""
    begin, decorator, step, output = KEPT_STATES[name]
    source = KEPT.format(begin=begin, decorator=decorator, step=step, output=output)
    candidate = source.replace("class Model", "class ModelNew")
    if name == "broadcast":
        candidate = candidate.replace(".clone()", "")
    verdict = patient_judge.judge(Task(name="kept", source=source), candidate)
    assert isinstance(verdict, Verdict), verdict
    assert verdict.is_correct, verdict.reason
