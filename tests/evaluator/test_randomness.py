"""Tasks that draw random numbers: outputs of timed calls are compared with the same numbers."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import special_corpora
from corpus.scene import is_credited

from actors.evaluator.judge import Judge
from protocol.values import Outcome, Reference, Task

CANDIDATES = special_corpora.candidates(
    "randomness", ("plain", "zeros", "product_left_out_late", "clamped_late", "right_after_seeds")
)


@pytest.mark.parametrize("path", CANDIDATES)
def test_random_numbers_excuse_nothing(patient_judge: Judge, path: Path) -> None:
    """A call returns what the task does with the same numbers, in checks and when it is timed."""
    verdict = special_corpora.judged(patient_judge, "randomness", path)
    if path.stem == "right_after_seeds":  # where a busy machine has blocks of one call, it is right
        assert not is_credited(verdict), verdict
    else:
        expected = Outcome.CORRECT if path.parent.name == "honest" else Outcome.WRONG
        assert expected is verdict.verdict, verdict


TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        {update}
        return {result} + torch.rand(4)

def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("update", "result", "expected"),
    [
        ("self.seen.add_(1)", "x", True),
        ("self.seen.add_(1)", "x * self.seen", False),
        ("torch.rand(int(x.abs().sum() * 1000))", "x", True),
        ("self.seen.add_(torch.rand(1 + int(self.seen)).numel())", "x", False),
    ],
)
def test_what_decides_outputs_besides_random_numbers_is_known(
    torch: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    update: str,
    result: str,
    expected: bool,
) -> None:
    """Where earlier calls decide outputs, or how many numbers follow, nothing is repeated."""
    from actors.evaluator.children import task_randomness
    from actors.evaluator.children.task_module import TaskModule

    assert torch
    monkeypatch.chdir(tmp_path)
    task = TaskModule(TASK.format(update=update, result=result), "cpu")
    task.make(1)
    assert expected is task_randomness.is_repeated(task, 2)


@pytest.mark.parametrize("is_steady", [True, False])
def test_one_draw_does_not_decide_that_calls_do_not_follow_the_state(
    torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_steady: bool
) -> None:
    """One draw in 50 showed nothing of what a ring keeps: then an honest candidate was wrong.

    Here one in five shows nothing; `is_steady`: that one came first.
    """
    from actors.evaluator.children import task_randomness
    from actors.evaluator.children.task_module import TaskModule

    assert torch
    monkeypatch.chdir(tmp_path)
    shown = "x + self.seen * (x[0] > -0.84)"
    task = TaskModule(TASK.format(update="self.seen.add_(1)", result=shown), "cpu")
    task.make(1)
    found = [
        task_randomness.find_repetition(task, 10 * seed, ("seen",), is_steady=is_steady)
        for seed in range(50)
    ]
    assert all(is_alone is not follows_state for is_alone, follows_state in found)
    alone = sum(is_alone for is_alone, _follows_state in found)
    assert alone <= (5 if is_steady else 2)  # 0.2**2 and 0.2**3 of 50, and chance


CACHE_TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = torch.zeros(1, 64)

    def forward(self, x):
        self.cache = torch.cat([self.cache, x])
        return torch.softmax(x @ self.cache.T / 8, -1) @ self.cache

def get_inputs():
    return [torch.randn(1, 64)]

def get_init_inputs():
    return []
"""


def test_one_draw_does_not_decide_whether_a_cache_is_read(
    torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 5 of 16 draws a call attended to itself alone, and the task's own text was `wrong`."""
    from actors.evaluator.children import task_randomness
    from actors.evaluator.children.task_module import TaskModule

    monkeypatch.chdir(tmp_path)
    for seed in range(0, 3000, 100):
        task = TaskModule(CACHE_TASK, "cpu")
        task.make(seed)
        inputs = task.inputs(seed)
        task.eager_outputs(task.inputs(seed + 1), seed)  # as where parameters are changed
        is_steady = task_randomness.is_steady(task, inputs, seed)
        found = task_randomness.find_repetition(task, seed, [], is_steady=is_steady)
        assert (False, False) == found


def test_draws_that_one_seed_does_not_repeat_are_no_state(
    torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generator made at import goes on from draw to draw: outputs seemed to follow from nothing.

    So no output of a timed call was compared where a task has a running state besides.
    """
    from actors.evaluator.children import task_randomness
    from actors.evaluator.children.task_module import TaskModule

    monkeypatch.chdir(tmp_path)
    source = TASK.format(update="self.seen.add_(x.mean())", result="x + self.seen")
    source = source.replace("torch.randn(4)", "torch.randn(4, generator=GENERATOR)")
    task = TaskModule(f"{source}\nGENERATOR = torch.Generator().manual_seed(0)\n", "cpu")
    task.make(1)
    assert not torch.equal(*(task.inputs(3)[0] for _time in range(2)))  # type: ignore[arg-type]
    assert (False, True) == task_randomness.find_repetition(task, 3, ["seen"], is_steady=False)


def test_the_random_state_after_calls_is_that_of_a_process_that_made_them(
    torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The referee draws the numbers of calls that it does not compare, too; inputs do not count."""
    from actors.evaluator.children import task_randomness
    from actors.evaluator.children.source_import import seed_all
    from actors.evaluator.children.task_module import TaskModule

    monkeypatch.chdir(tmp_path)
    drawn = "torch.rand(int(x.abs().sum() * 1000))"  # inputs decide how many
    task = TaskModule(TASK.format(update=drawn, result="x"), "cpu")
    task.make(1)
    blocks = [task.inputs(slot) for slot in range(4)]
    seed_all(3)
    outputs = [task.model(*inputs) for inputs in blocks]
    state = task_randomness.random_start_after(task, task.inputs, 3, 3)
    assert torch.equal(outputs[3], task.eager_outputs(blocks[3], state))


def test_a_task_with_random_numbers_says_which_a_candidate_draws(patient_judge: Judge) -> None:
    """A fused kernel with numbers of its own is wrong: agents read that before they write one."""
    source = special_corpora.task_source("randomness")
    reference = patient_judge.measure(Task(name="randomness", source=source))
    assert isinstance(reference, Reference)
    assert any("has to draw the same ones as Model" in each for each in reference.notes)
