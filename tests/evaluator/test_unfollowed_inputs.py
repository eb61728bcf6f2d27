"""A note says of which parts of inputs nothing shows in the outputs."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from referee_samples import prepared_task

from actors.evaluator.judge import Judge
from protocol.values import Reference, Task

TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent = torch.nn.{kind}(16, 32, batch_first=True, {more})

    def forward(self, x):
        {body}

def get_inputs():
    return [torch.{draw}(4, 128, 16)]

def get_init_inputs():
    return []
"""
LAST = "return self.recurrent(x)[0][:, -1]"


@pytest.mark.parametrize(
    ("kind", "more", "body", "draw", "unfollowed"),
    [
        ("RNN", "nonlinearity='relu'", LAST, "randn", {"first half of input 0 along dimension 1"}),
        ("LSTM", "", LAST, "randn", set()),  # its parameters make it remember
        ("RNN", "", "return x.flip(1).cumsum(1)[:, -64:]", "rand", set()),
        ("RNN", "", "return x.mean()", "rand", set()),
        (
            "RNN",
            "",
            "return x[:, :64].cumprod(1)",
            "rand",
            {"last half of input 0 along dimension 1"},
        ),
        ("RNN", "", "return torch.softmax(x, 1), x.argmax(1)", "randn", set()),
    ],
)
def test_halves_that_no_output_follows_are_noted(
    torch: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    more: str,
    body: str,
    draw: str,
    unfollowed: set[str],
) -> None:
    from actors.evaluator.children import unfollowed_inputs
    from actors.evaluator.children.unfollowed_inputs import unfollowed_notes

    monkeypatch.chdir(tmp_path)  # a task's file is written where the process works
    monkeypatch.setattr(unfollowed_inputs, "MOST_S", 60.0)  # on a busy machine a call is slow
    monkeypatch.setattr(unfollowed_inputs, "SLOW_CALL_S", 60.0)
    task = prepared_task(TASK.format(kind=kind, more=more, body=body, draw=draw))
    task.perturb(task.inputs(2), 3)
    notes = unfollowed_notes(task, 5)
    assert {each.split("the ", 1)[1].split(":")[0] for each in notes} == unfollowed


def test_a_tasks_reference_has_the_note(patient_judge: Judge) -> None:
    source = TASK.format(kind="RNN", more="", body="return x[:, :64] * 2", draw="randn")
    reference = patient_judge.measure(Task(name="half", source=source))
    assert isinstance(reference, Reference)
    assert any("no output follows the last half of input 0" in each for each in reference.notes)
