"""Tasks whose calls change their own buffers: a candidate's calls change them likewise."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
import special_corpora

from actors.evaluator.judge import Judge
from protocol.values import Outcome, Reference, Task, Verdict

CANDIDATES = special_corpora.candidates(
    "statistics", ("plain", "renamed", "left_out", "left_out_late")
)
REASONS = {
    "left_out": "calls: buffer bn.running_mean[0]: expected ",
    "left_out_late": "timed calls: buffer bn.",
    "uncounted": "calls: buffer bn.num_batches_tracked: expected ",
    "biased": "calls: buffer bn.running_var[0]: expected ",
    "without_buffers": "calls: ModelNew has no buffer or attribute bn.",
}


def task() -> Task:
    return Task(name="statistics", source=special_corpora.task_source("statistics"))


@pytest.mark.parametrize("path", CANDIDATES)
def test_what_a_call_changes_in_the_module_is_compared(patient_judge: Judge, path: Path) -> None:
    """A winner is a drop-in: it trains on, and is saved, with the statistics of its task."""
    verdict = patient_judge.judge(task(), path.read_text(encoding="utf-8"))
    assert isinstance(verdict, Verdict)
    if path.parent.name == "honest":
        assert Outcome.CORRECT is verdict.verdict, verdict
        # Calls in between have changed the reference's own buffers.
        again = patient_judge.judge(task(), path.read_text(encoding="utf-8"))
        assert isinstance(again, Verdict)
        assert Outcome.CORRECT is again.verdict, again
    else:
        assert Outcome.WRONG is verdict.verdict, verdict
        assert REASONS[path.stem] in verdict.reason


CACHE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(16, 32))
        self.at = 0

    def forward(self, x):
        self.keys[self.at % 16] = x
        self.at += 1
        return torch.softmax(self.keys @ x, 0) @ self.keys

def get_inputs():
    return [torch.randn(32) / 4]

def get_init_inputs():
    return []
"""


def test_attributes_that_decide_outputs_begin_as_they_are_constructed(
    patient_judge: Judge,
) -> None:
    """The referee had made calls before: a cache's next place differed, and its copy was wrong."""
    task = Task(name="cache", source=CACHE)
    for _time in range(2):
        verdict = patient_judge.judge(task, CACHE.replace("class Model", "class ModelNew"))
        assert isinstance(verdict, Verdict)
        assert verdict.is_correct, verdict


def test_a_task_says_what_its_calls_change(patient_judge: Judge) -> None:
    """Agents read it before they write anything."""
    reference = patient_judge.measure(task())
    assert isinstance(reference, Reference)
    assert reference.facts is not None
    (line,) = [each for each in reference.facts.rule_lines if "Each call of Model" in each]
    assert "bn.running_mean, bn.running_var, bn.num_batches_tracked" in line


COUNTED = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("first", torch.zeros(8))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.count = 0

    def forward(self, x):
        if not self.count:
            self.first.copy_(x.mean(0))
        decay = (1 + self.count) / (10 + self.count)
        self.count += 1
        self.calls += 1
        self.mean.mul_(decay).add_(x.mean(0), alpha=1 - decay)
        return x * 2

def get_inputs():
    return [torch.randn(64, 8) + 3]

def get_init_inputs():
    return []
"""


@pytest.mark.long
def test_a_state_that_attributes_decide_is_not_compared(patient_judge: Judge) -> None:
    """The referee's module has made other calls: its attributes are not those of a candidate."""
    task = Task(name="counted", source=COUNTED)
    verdict = patient_judge.judge(task, COUNTED.replace("class Model", "class ModelNew"))
    assert isinstance(verdict, Verdict)
    assert Outcome.CORRECT is verdict.verdict, verdict
    reference = patient_judge.measure(task)
    assert isinstance(reference, Reference)
    assert reference.facts is not None
    (line,) = [each for each in reference.facts.rule_lines if "Each call of Model" in each]
    assert "Each call of Model changes calls: " in line


HIDDEN = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("hidden", torch.full((32,), 0.3, dtype={dtype}))

    def forward(self, x):
        self.hidden = {step}
        return self.hidden + x

def get_inputs():
    return [torch.randn(32, dtype={dtype})]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("step", "is_steady"),
    [
        ("torch.tanh(self.hidden * 0.5 + x)", True),
        ("3.99 * self.hidden * (1 - self.hidden)", False),
    ],
)
def test_a_block_is_repeated_from_a_candidates_state(
    torch: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    is_steady: bool,
    dtype: str,
) -> None:
    """Its end is compared; where last digits decide the end, the control says so."""
    from actors.evaluator.children import module_updates
    from actors.evaluator.children.task_module import TaskModule
    from actors.evaluator.children.tensors import tensor_bytes
    from actors.evaluator.ipc import shared_memory
    from actors.evaluator.ipc.referee_orders import CompareState, RepeatBlock

    monkeypatch.chdir(tmp_path)
    task = TaskModule(HIDDEN.format(step=step, dtype=f"torch.{dtype}"), "cpu")
    task.make(1)
    inputs = [task.inputs(seed) for seed in range(60)]
    begin = task.state["hidden"].clone()
    for given in inputs:
        task.model(*given)
    end = task.model.hidden
    regions = [shared_memory.allocate_unsealed(256) for _state in range(2)]
    for region, state in zip(regions, (begin, end), strict=True):
        tensor_bytes.write({"hidden": state}, region)
    task.model.hidden = torch.zeros_like(begin)
    order = RepeatBlock(names=("hidden",), calls=len(inputs))
    assert module_updates.repeat_block(task, order, inputs.__getitem__) is None
    compared = CompareState(names=("hidden",), calls=len(inputs), is_block=True)
    assert not module_updates.compare_state(task, compared, regions[1]).reason
    assert module_updates.compare_state(task, compared, regions[0]).reason
    control = RepeatBlock(names=("hidden",), calls=len(inputs), is_control=True)
    found = module_updates.repeat_block(task, control, inputs.__getitem__)
    assert found is not None
    assert is_steady is not bool(found.reason)
    for region in regions:
        os.close(region)


DROPPED = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(32))

    def forward(self, x):
        self.mean.lerp_(torch.nn.functional.dropout(x), 0.5)
        return x

def get_inputs():
    return [torch.randn(32)]

def get_init_inputs():
    return []
"""


def test_a_blocks_random_numbers_are_repeated_where_inputs_are_drawn_between_calls(
    torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slots that can't be mixed are drawn again, by the generators that the calls use."""
    from actors.evaluator.children import module_updates
    from actors.evaluator.children.source_import import seed_all
    from actors.evaluator.children.task_module import TaskModule
    from actors.evaluator.children.tensors import tensor_bytes
    from actors.evaluator.ipc import shared_memory
    from actors.evaluator.ipc.referee_orders import CompareState, RepeatBlock

    monkeypatch.chdir(tmp_path)
    task = TaskModule(DROPPED, "cpu")
    task.make(1)
    blocks = [task.inputs(seed) for seed in range(3)]
    seed_all(5)
    for given in blocks:
        task.model(*given)
    region = shared_memory.allocate_unsealed(256)
    tensor_bytes.write({"mean": task.model.mean}, region)
    order = RepeatBlock(names=("mean",), calls=3, seed=5)
    module_updates.repeat_block(task, order, task.inputs)
    compared = CompareState(names=("mean",), calls=3, is_block=True)
    assert not module_updates.compare_state(task, compared, region).reason
    os.close(region)


# In float32 its products are as inexact as TF32's, in float64 they are not.
INEXACT = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64, 32) / 8)
        self.bn = torch.nn.BatchNorm1d(32)

    def rounded(self, value):
        return value.bfloat16().to(value.dtype) if value.dtype is torch.float32 else value

    def forward(self, x):
        return self.bn(self.rounded(x) @ self.rounded(self.weight))

def get_inputs():
    return [torch.randn(128, 64) + 3]

def get_init_inputs():
    return []
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("forward", "outcome"),
    [
        ("self.bn(x @ self.weight)", Outcome.CORRECT),
        ("self.bn(1.2 * (x @ self.weight)) / 1.0", Outcome.WRONG),
    ],
)
def test_exact_statistics_are_right_where_the_modules_own_are_not(
    patient_judge: Judge, forward: str, outcome: Outcome
) -> None:
    """Eager's own error is no candidate's: three exact winners were told to be wrong by it."""
    task = Task(name="inexact", source=INEXACT)
    candidate = INEXACT.replace("class Model", "class ModelNew").replace(
        "self.bn(self.rounded(x) @ self.rounded(self.weight))", forward
    )
    verdict = patient_judge.judge(task, candidate)
    assert isinstance(verdict, Verdict)
    assert outcome is verdict.verdict, verdict
    assert "buffer bn.running" in verdict.reason or outcome is Outcome.CORRECT


@pytest.mark.long
@pytest.mark.parametrize(("scale", "outcome"), [(1.002, Outcome.CORRECT), (1.03, Outcome.WRONG)])
def test_what_eager_loses_in_one_tensor_passes_in_another(
    patient_judge: Judge, scale: float, outcome: Outcome
) -> None:
    """A fused kernel that rounded between its normalisations was wrong where eager rounds before.

    The second one's statistics have none of the first product's error: the first one scales it.
    """
    source = INEXACT.replace("value.bfloat16().to(value.dtype)", "value * 1.001")
    source = source.replace(
        "self.bn = ", "self.next = torch.nn.BatchNorm1d(32)\n        self.bn = "
    )
    forward = "self.bn(self.rounded(x) @ self.rounded(self.weight))"
    candidate = source.replace("class Model", "class ModelNew").replace(
        forward, f"self.next({scale} * torch.relu(self.bn(x @ self.weight)))"
    )
    source = source.replace(forward, f"self.next(torch.relu({forward}))")
    verdict = patient_judge.judge(Task(name="inexact", source=source), candidate)
    assert isinstance(verdict, Verdict)
    assert verdict.verdict is outcome, verdict
    assert "buffer next.running" in verdict.reason or outcome is Outcome.CORRECT


def test_eagers_own_error_passes_where_there_is_no_float64(
    torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large tasks of a card are compared with eager itself, whose convolutions are in TF32."""
    from actors.evaluator.children import correctness, task_module

    monkeypatch.chdir(tmp_path)
    task = task_module.TaskModule(INEXACT, "cpu")
    task.make(1)
    inputs = task.inputs(1)
    outputs = task.eager_outputs(inputs, 1)

    @contextmanager
    def exact() -> Iterator[None]:
        rounded = type(task.model).rounded
        monkeypatch.setattr(type(task.model), "rounded", lambda _self, value: value)
        yield
        monkeypatch.setattr(type(task.model), "rounded", rounded)

    monkeypatch.setattr(task_module, "without_tf32", exact)
    assert task.own_error_floors(inputs, 1) == ()  # a host has no TF32
    task.device = "cuda"
    (floor,) = task.own_error_floors(inputs, 1)
    with exact():
        loss = correctness.relative_loss(outputs, task.eager_outputs(inputs, 1))
    assert loss < floor < 3 * loss  # another rounding like eager's passes, a coarser one does not
    task.has_double = True
    assert task.own_error_floors(inputs, 1) == ()


@pytest.mark.parametrize("is_newer", [False, True])
def test_settings_of_tf32_come_back(torch: ModuleType, is_newer: bool) -> None:
    """A task may name a precision as older torch did, or as newer does; both at once don't mix."""
    from actors.evaluator.children.task_module import without_tf32

    program = """
import torch
from actors.evaluator.children.task_module import without_tf32
products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
def settings():
    return products.fp32_precision, convolutions.conv.fp32_precision
{setting}
before = settings()
with without_tf32():
    assert "tf32" not in settings(), settings()
assert settings() == before and "tf32" in before, (settings(), before)
"""
    assert without_tf32
    older = "products.allow_tf32 = True"
    newer = 'products.fp32_precision = "tf32"'
    words = [sys.executable, "-c", program.format(setting=newer if is_newer else older)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
