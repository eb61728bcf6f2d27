"""A task that does not fit into the machine's memory is refused in one line before it takes any."""

from __future__ import annotations

from types import ModuleType

import pytest
from evaluator_samples import candidate

from actors.evaluator.children import memory_estimate
from actors.evaluator.children.task_errors import UnsuitableTaskError
from actors.evaluator.judge import Judge, TaskProblem
from actors.evaluator.sandbox.child_client import ChildFailure
from protocol.values import Task

TIB = 1 << 40


def module(rows: int, forward: str = "x") -> ModuleType:
    """Return a task with `rows` KiB of inputs, a weight of 4 KiB, and outputs of x's size."""
    task = ModuleType("task")
    exec(  # noqa: S102  # as the referee does with a task
        "import torch\n"
        "class Model(torch.nn.Linear):\n"
        "    def __init__(self, width): super().__init__(width, 4, bias=False)\n"
        f"    def forward(self, x): return {forward}\n"
        f"def get_inputs(): return [torch.rand({rows}, 256)]\n"
        "def get_init_inputs(): return [256]\n",
        task.__dict__,
    )
    return task


def test_large_tasks_count_inputs_parameters_and_outputs() -> None:
    """Terabytes are counted without an allocation; a small task is not run for its outputs."""
    rows = TIB // 1024
    assert 2 * TIB + 4096 == memory_estimate.task_bytes(module(rows))
    assert 8 * 1024 + 4096 == memory_estimate.task_bytes(module(8, forward="never_run"))


def test_a_task_without_an_estimate_is_tried() -> None:
    """A module that does not run on the meta device is not refused for that."""
    task = module(TIB // 1024, forward="x * x.sum().item()")
    assert 0 == memory_estimate.task_bytes(task)
    memory_estimate.require_memory(task)


def test_the_refusal_has_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is just too large is refused; one that just fits is not."""
    large = module(TIB // 1024)
    wanted = (
        memory_estimate.TASK_COPIES * memory_estimate.task_bytes(large)
        + memory_estimate.OTHER_BYTES
    )
    monkeypatch.setattr(memory_estimate, "free_bytes", lambda: wanted)
    memory_estimate.require_memory(large)
    monkeypatch.setattr(memory_estimate, "free_bytes", lambda: wanted - 1)
    with pytest.raises(UnsuitableTaskError, match=r"its tensors take 2048\.0 GiB"):
        memory_estimate.require_memory(large)


def test_free_memory_is_that_of_this_machine() -> None:
    """It is more than zero and less than a terabyte."""
    free = memory_estimate.free_bytes()
    assert free is not None
    assert 0 < free < TIB


def test_the_judge_refuses_such_a_task_and_judges_the_next(judge: Judge, task: Task) -> None:
    """A KernelBench problem with inputs of many gigabytes ends in one line; nothing is killed."""
    source = task.source.replace("torch.randn(32, 64)", "torch.randn(1 << 33, 64)")
    huge = Task(name="huge", source=source)
    before = judge.zygote_pid
    found = judge.measure(huge)

    assert isinstance(found, TaskProblem)
    assert "too large for this machine" in found.reason
    verdict = judge.judge(task, candidate())
    assert not isinstance(verdict, TaskProblem)
    assert verdict.is_correct
    assert before in (None, judge.zygote_pid)


def test_a_child_without_a_memory_limit_is_reported_without_one() -> None:
    """A reference has no limit of its own: "more than 0 MiB" would mislead its user."""
    assert "more than 2048 MiB" in ChildFailure(how="memory", number=2048).readable()
    reason = ChildFailure(how="memory").readable()
    assert "MiB" not in reason
    assert "no memory left" in reason
