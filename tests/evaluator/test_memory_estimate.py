"""A task that does not fit into the machine's memory is refused in one line before it takes any."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch
from evaluator_samples import wrong_candidate

from actors.evaluator.children import memory_estimate
from actors.evaluator.children.task_errors import UnsuitableTaskError
from actors.evaluator.ipc.card_memory import TaskBytes
from actors.evaluator.judge import Judge, TaskProblem
from actors.evaluator.sandbox.child_client import ChildFailure
from protocol.values import Outcome, Task

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
    large = memory_estimate.task_bytes(module(TIB // 1024))
    assert large == TaskBytes(inputs=TIB, outputs=TIB, parameters=4096)
    small = memory_estimate.task_bytes(module(8, forward="never_run"))
    assert small == TaskBytes(inputs=8 * 1024, outputs=0, parameters=4096)


def test_large_outputs_of_small_inputs_count() -> None:
    """An outer product of two vectors is seen to be large before it is computed."""
    task = module(1)
    task.__dict__["get_inputs"] = lambda: [torch.rand(1 << 18)]
    task.__dict__["Model"].forward = lambda _self, x: torch.outer(x, x)
    assert memory_estimate.task_bytes(task).outputs == 4 << 36


def test_an_estimate_imports_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch imports it at such calls only to tell it nothing: each task would wait for seconds."""
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    large = memory_estimate.task_bytes(module(TIB // 1024, forward="torch.relu(x)"))
    assert large.outputs == TIB
    assert "torch._dynamo" not in sys.modules


def test_a_task_without_an_estimate_is_tried() -> None:
    """A module that does not run on the meta device is not refused for that."""
    task = module(TIB // 1024, forward="x * x.sum().item()")
    assert memory_estimate.task_bytes(task) == TaskBytes(inputs=0, outputs=0)
    memory_estimate.require_memory(task, "cpu")


def test_the_refusal_has_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is just too large is refused; one that just fits is not."""
    large = module(TIB // 1024)
    wanted = memory_estimate.TASK_COPIES * (2 * TIB + 4096) + memory_estimate.OTHER_BYTES
    monkeypatch.setattr(memory_estimate, "free_bytes", lambda: wanted)
    memory_estimate.require_memory(large, "cpu")
    monkeypatch.setattr(memory_estimate, "free_bytes", lambda: wanted - 1)
    with pytest.raises(UnsuitableTaskError, match=r"its tensors take 2048\.0 GiB"):
        memory_estimate.require_memory(large, "cpu")


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
    verdict = judge.judge(task, wrong_candidate())
    assert not isinstance(verdict, TaskProblem)
    assert verdict.verdict is Outcome.WRONG
    assert before in (None, judge.zygote_pid)


def test_a_child_without_a_memory_limit_is_reported_without_one() -> None:
    """A reference has no limit of its own: "more than 0 MiB" would mislead its user."""
    assert "more than 2048 MiB" in ChildFailure(how="memory", number=2048).readable()
    reason = ChildFailure(how="memory").readable()
    assert "MiB" not in reason
    assert "no memory left" in reason
