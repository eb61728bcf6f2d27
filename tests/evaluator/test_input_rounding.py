"""Eager's error is measured on inputs with other last digits before an output is called wrong."""

from __future__ import annotations

import weakref
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from referee_samples import order_and_rules, reason

if TYPE_CHECKING:
    from actors.evaluator.children.reference_round import ReferenceRound

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {result}

def get_inputs():
    return [{drawn}]

def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task's file is written where the process works."""
    monkeypatch.chdir(tmp_path)


def round_of(result: str, drawn: str) -> ReferenceRound:
    """Return one draw of a task, and what the module returns for it."""
    from actors.evaluator.children.reference_round import ReferenceRound
    from actors.evaluator.children.task_module import TaskModule

    task = TaskModule(TASK.format(result=result, drawn=drawn), "cpu")
    task.make(1)
    inputs = task.inputs(2)
    task.find_precision(inputs)
    task.is_repeated = True
    found = ReferenceRound(inputs)
    found.call(task, 3)
    return found


NEARLY_SINGULAR = (
    "torch.linalg.inv(x)",
    "(lambda a: a.index_put((torch.tensor(0), torch.tensor(0)), a[0, 1] + 1e-8 * a[0, 0]))"
    "(torch.randn(8, 32, 32, dtype=torch.float64))",
)


def test_another_inverse_of_a_nearly_singular_matrix_is_right_in_float64(
    torch: ModuleType,
) -> None:
    """It is as far from eager's as what rounding the matrix changes: 1e-9 was the limit."""
    drawn = round_of(*NEARLY_SINGULAR)
    (matrix,) = drawn.inputs
    q, r = torch.linalg.qr(matrix)
    other = torch.linalg.solve_triangular(r, q.mT, upper=True)
    drawn.rounded, kept = None, drawn.rounded
    assert reason(drawn, other)
    drawn.rounded = kept
    assert not reason(drawn, other)
    assert reason(drawn, torch.linalg.inv(matrix.float()).double())
    assert reason(drawn, torch.zeros_like(other))
    assert reason(drawn, other * (1 + 1e-5))


def test_what_rounding_does_not_change_stays_at_the_floor(torch: ModuleType) -> None:
    """A product of float64 in float32 is wrong."""
    drawn = round_of("x @ x.mT", "torch.randn(64, 64, dtype=torch.float64)")
    (x,) = drawn.inputs
    assert not reason(drawn, (x[:, :32] @ x.mT[:32]) + (x[:, 32:] @ x.mT[32:]))
    assert reason(drawn, (x.float() @ x.mT.float()).double())


def test_elements_that_are_equal_by_chance_may_be_sorted_either_way(torch: ModuleType) -> None:
    """Of 128 rows of 300 numbers one draw in 15 has two equal ones in a row."""
    equal = "(lambda a: a.index_put((torch.tensor(3), torch.tensor(7)), a[3, 90]))"
    drawn = round_of("x.sort(stable=True).indices", f"{equal}(torch.randn(128, 300))")
    (x,) = drawn.inputs
    backwards = 299 - x.flip(1).sort(stable=True).indices
    assert int((backwards != drawn.eager).sum()) == 2
    assert not reason(drawn, backwards)
    assert reason(drawn, torch.arange(300).expand(128, -1).contiguous())
    other = backwards.clone()
    other[:64] = other[:64].flip(1)
    assert reason(drawn, other)


def test_inputs_that_were_compared_are_not_held(torch: ModuleType) -> None:
    """The candidate needs the memory; outputs are compared again, after its next call."""
    equal = "(lambda a: a.index_put((torch.tensor(3), torch.tensor(7)), a[3, 90]))"
    drawn = round_of("x.sort(stable=True).indices", f"{equal}(torch.randn(128, 300))")
    (x,) = drawn.inputs
    backwards = 299 - x.flip(1).sort(stable=True).indices
    assert not reason(drawn, backwards)
    assert not drawn.compare_inputs([x.clone()], *order_and_rules()).reason
    held = weakref.ref(x)
    del x
    assert held() is None
    assert not reason(drawn, backwards)
    assert reason(drawn, backwards.flip(1))


def test_elements_that_are_equal_by_design_are_not_set_apart(torch: ModuleType) -> None:
    """`x == y` of few values would be false everywhere, and anything right."""
    from actors.evaluator.children.input_rounding import with_other_digits

    drawn = round_of("x == x.roll(1, 0)", "torch.randint(0, 50, (64, 64)).float()")
    assert with_other_digits(drawn.inputs, 0) is None
    assert reason(drawn, torch.zeros(64, 64, dtype=torch.bool))
    normal = torch.randn(64, 64)
    assert with_other_digits([normal, normal.clone()], 0) is None
    assert with_other_digits([normal.bfloat16()], 0) is None
    (other,) = with_other_digits([normal], 0) or [normal]
    assert 0 < float((other - normal).abs().max()) < 1e-6
    assert torch.equal(other == 0, normal == 0)


def test_where_last_digits_decide_all_zeros_are_wrong(torch: ModuleType) -> None:
    """Sixty steps of a chaotic map in float64: every element is another one after rounding."""
    steps = "__import__('functools').reduce(lambda y, _: 4 * y * (1 - y), range(60), x)"
    drawn = round_of(steps, "torch.rand(64, 64, dtype=torch.float64)")
    assert drawn.rounded is not None
    (eager,) = (drawn.eager,)
    other = drawn.rounded.outputs(0, eager)[0]  # type: ignore[arg-type]
    assert float((other - eager).abs().mean()) > 0.1  # type: ignore[operator]
    assert reason(drawn, torch.zeros(64, 64, dtype=torch.float64))
