"""Recurrent modules of torch are judged with parameters that remember all of a sequence."""

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
    def __init__(self):
        super().__init__()
        self.recurrent = torch.nn.{kind}(32, 64, {layers}, batch_first=True)
        self.last = torch.nn.Linear(64, 8)

    def forward(self, x):
        return self.last(self.recurrent(x{part})[0][:, -1])

def get_inputs():
    return [torch.rand(4, 256, 32)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(("kind", "layers"), [("LSTM", 3), ("GRU", 2), ("RNN", 1)])
def test_each_step_of_a_sequence_counts(
    torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, layers: int
) -> None:
    """As constructed, the last 64 of 256 steps are right within rounding."""
    from actors.evaluator.children.correctness import relative_loss

    monkeypatch.chdir(tmp_path)  # a task's file is written where the process works
    task = prepared_task(TASK.format(kind=kind, layers=layers, part=""))

    def lost(steps: int) -> float:
        (x,) = task.inputs(3)
        exact = task.double_outputs([x.clone()], 0)
        with torch.no_grad():
            return relative_loss(task.model(x[:, -steps:]), exact)  # type: ignore[arg-type]

    assert lost(64) < 1e-6
    task.perturb(task.inputs(2), 4)
    assert lost(64) > 1e-2
    assert lost(192) > 1e-2
    assert lost(256) < 1e-5  # eager's own error stays small


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_half_of_the_units_stay_as_they_are(torch: ModuleType, kind: str) -> None:
    """What a gate follows from shows in those; other parameters change by a fifth, as always."""
    from actors.evaluator.children.input_variants import perturb

    model = getattr(torch.nn, kind)(8, 512, 2, bidirectional=True)
    state = perturb(model, 5)
    changed = 0
    for name, value in model.state_dict().items():
        far = (state[name] - value).abs() > 1.0
        assert not far.any() or name.startswith(("bias_hh", "weight_hh"))
        changed += int(far.sum())
    layers = 4
    gates = {"LSTM": 2, "GRU": 1, "RNN": 1}[kind]
    assert 0.4 < changed / (layers * gates * 512) < 0.6


def test_the_last_steps_alone_are_wrong(patient_judge: Judge) -> None:
    """They were correct, and 3.4 times as fast."""
    source = TASK.format(kind="LSTM", layers=1, part="")
    candidate = TASK.format(kind="LSTM", layers=1, part="[:, -64:]")
    task = Task(name="lstm", source=source)
    verdict = patient_judge.judge(task, candidate.replace("class Model", "class ModelNew"))
    assert verdict.verdict is Outcome.WRONG, verdict
    own = patient_judge.judge(task, source.replace("class Model", "class ModelNew"))
    assert own.verdict is Outcome.CORRECT, own
