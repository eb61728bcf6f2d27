"""Tasks that do not fit into the machine's memory: one line, before memory is taken."""

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
    made = ModuleType("task")
    exec(  # noqa: S102  # as the referee does with a task
        "import torch\n"
        "class Model(torch.nn.Linear):\n"
        "    def __init__(self, width): super().__init__(width, 4, bias=False)\n"
        f"    def forward(self, x): return {forward}\n"
        f"def get_inputs(): return [torch.rand({rows}, 256)]\n"
        "def get_init_inputs(): return [256]\n",
        made.__dict__,
    )
    return made


def test_large_tasks_count_inputs_parameters_and_outputs() -> None:
    """Terabytes are counted without being taken; a small task is not run for its outputs."""
    rows = TIB // 1024
    assert 2 * TIB + 4096 == memory_estimate.task_bytes(module(rows))
    assert 8 * 1024 + 4096 == memory_estimate.task_bytes(module(8, forward="never_run"))


def test_a_task_that_can_not_be_estimated_is_tried() -> None:
    """A module that the meta device can't run is not refused for that."""
    unsupported = module(TIB // 1024, forward="x * x.sum().item()")
    assert 0 == memory_estimate.task_bytes(unsupported)
    memory_estimate.require_memory(unsupported)


def test_the_refusal_gives_needed_and_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task just too large is refused with figures, one just small enough is not."""
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
    """A figure between zero and all memory."""
    free = memory_estimate.free_bytes()
    assert free is not None
    assert 0 < free < TIB


def test_the_judge_refuses_such_a_task_and_judges_the_next(judge: Judge, task: Task) -> None:
    """A KernelBench problem with inputs of many gigabytes ends with a line, not with a kill."""
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


def test_a_kill_without_a_limit_names_no_limit() -> None:
    """A reference has no limit: "more than 0 MiB" would mislead its user."""
    assert "more than 2048 MiB" in ChildFailure(how="memory", number=2048).readable()
    text = ChildFailure(how="memory").readable()
    assert "MiB" not in text
    assert "no memory left" in text
