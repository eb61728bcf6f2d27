"""Tasks that are judged with their backward pass: gradients are compared, timed, and not faked."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import special_corpora

from actors.evaluator.judge import Judge, TaskProblem
from protocol.values import Outcome, Reference, Task, Verdict

CANDIDATES = special_corpora.candidates(
    "training", ("function", "detached", "gradient_kept_by_storage", "backward_skipped_in_time")
)


@pytest.fixture
def training() -> Task:
    source = special_corpora.task_source("training")
    return Task(name="training", source=source, backward=True)


@pytest.mark.parametrize("path", CANDIDATES)
def test_a_gradient_that_is_not_computed_is_wrong(
    patient_judge: Judge, training: Task, path: Path
) -> None:
    """Whatever a candidate keeps, skips, detaches or guesses: only true gradients are correct."""
    verdict = patient_judge.judge(training, path.read_text(encoding="utf-8"))
    assert isinstance(verdict, Verdict)
    expected = Outcome.CORRECT if path.parent.name == "honest" else Outcome.WRONG
    assert expected is verdict.verdict, verdict
    if expected is Outcome.WRONG:
        assert "gradient" in verdict.reason


def test_a_task_says_what_gets_a_gradient(patient_judge: Judge, training: Task) -> None:
    """Agents read that the call is forward and backward, of what, and how to give gradients."""
    reference = patient_judge.measure(training)
    assert isinstance(reference, Reference)
    (note,) = [line for line in reference.notes if "backward" in line]
    assert "input 0, 3 parameters" in note
    assert reference.judged is not None
    assert (0,) == reference.judged.gradients
    assert 1 == len(reference.judged.inputs.items)  # type: ignore[union-attr]


MARKED = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, y, ids):
        return x[ids] * y, (x.sum(), ids + 1, None)

def get_inputs():
    return [torch.randn(5, 3, requires_grad=True), torch.randn(5, 3), torch.arange(5)]

def get_init_inputs():
    return []

def get_grad_inputs():
    return [torch.ones(5, 3), torch.zeros(())]
"""


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory for the file that a task is imported from."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("own_folder")
def test_a_task_with_get_grad_inputs_is_differentiated_as_it_says(torch: ModuleType) -> None:
    """Marked inputs get gradients and no others; gradients of outputs are the task's own."""
    from actors.evaluator.children.task_module import TaskModule

    task = TaskModule(MARKED, "cpu")
    task.make(1)
    assert ((0,), (0, 1), ()) == (task.form.inputs, task.form.outputs, task.form.parameters)
    inputs = task.inputs(2)
    result = task.eager_outputs(inputs, 0)
    assert isinstance(result, dict)
    assert torch.equal(result["gradient of input"][0], inputs[1])
    assert result["output"][1][2] is None
    assert not result["output"][0].requires_grad


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("return x[ids] * y, (x.sum(), ids + 1, None)", "return ids"), "nothing that can be"),
        (("torch.zeros(())]", "torch.zeros(2)]"), "expected a gradient for each"),
        (("return x[ids] * y", "y.mul_(x); return x.mul_(2)"), "raised RuntimeError"),
    ],
)
@pytest.mark.usefixtures("own_folder")
def test_a_task_that_can_t_be_differentiated_is_told_why(
    torch: ModuleType, change: tuple[str, str], expected: str
) -> None:
    """One line that names the function."""
    from actors.evaluator.children.task_errors import UnsuitableTaskError
    from actors.evaluator.children.task_module import TaskModule

    assert torch
    task = TaskModule(MARKED.replace(*change), "cpu")

    def prepare() -> None:
        task.make(1)
        task.inputs(1)

    with pytest.raises(UnsuitableTaskError, match=expected):
        prepare()


def test_a_task_without_a_parameter_or_float_is_refused(patient_judge: Judge) -> None:
    """A run ends with one line instead of a candidate that can't be right."""
    source = MARKED.replace("requires_grad=True", "").replace(
        "torch.randn(5, 3)", "torch.arange(5)"
    )
    found = patient_judge.measure(Task(name="integers", source=source, backward=True))
    assert isinstance(found, TaskProblem)
