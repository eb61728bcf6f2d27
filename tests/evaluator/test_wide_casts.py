"""A module that casts to lower precision itself is compared with float64 without these casts."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from referee_samples import prepared_task, reason

if TYPE_CHECKING:
    from actors.evaluator.children.task_module import TaskModule

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        {body}

def get_inputs():
    return [torch.randn(64, 96)]

def get_init_inputs():
    return []
"""
STEPS = """x = x.bfloat16() / x.bfloat16().norm()
        for _ in range({}):
            a = x @ x.T
            x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
        return x"""


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task's file is written where the process works."""
    monkeypatch.chdir(tmp_path)


def prepared(body: str) -> TaskModule:
    """Return the task with this body."""
    return prepared_task(TASK.format(body=body))


@pytest.mark.parametrize(
    "body",
    [
        "return (x - x.bfloat16().float()).bfloat16()",  # what the cast leaves
        "return x.bfloat16().argmax(1), x.bfloat16()",
    ],
)
def test_casts_that_decide_outputs_stay(torch: ModuleType, body: str) -> None:
    """Without them the module would be another one."""
    assert not prepared(body).has_double


def test_casts_of_the_module_are_undone_in_float64(torch: ModuleType) -> None:
    """Newton-Schulz steps in float32 are ten times nearer to float64 than those in bfloat16."""
    from actors.evaluator.children.reference_round import ReferenceRound

    task = prepared(STEPS.format(5))
    assert task.has_double
    (x,) = task.inputs(2)
    found = ReferenceRound([x])
    found.call(task, 0)
    exact: Any = found.exact
    assert not reason(found, exact.bfloat16())
    assert not reason(found, found.eager)
    assert reason(found, 0 * exact.bfloat16())
    for steps in (3, 4):
        fewer = prepared(STEPS.format(steps)).eager_outputs([x.clone()], 0)
        assert reason(found, fewer)
