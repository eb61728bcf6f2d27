"""Inputs that are equal in each draw: a candidate may ignore them, and a user is told so."""

from __future__ import annotations

from types import ModuleType

import pytest

from actors.evaluator.judge import Judge
from protocol.values import Reference, Task

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, state, places):
        return torch.relu(x[places]) + state

def get_inputs():
    torch.manual_seed(3)
    return [torch.randn(16, 8), torch.zeros(16, 8), torch.arange(16)]

def get_init_inputs():
    return []
"""


def test_a_reference_has_a_note_on_inputs_that_are_the_same(patient_judge: Judge) -> None:
    """What the task draws with a seed of its own is not among them: that seed is mixed."""
    reference = patient_judge.measure(Task(name="fixed", source=TASK))
    assert isinstance(reference, Reference)
    (note,) = reference.notes
    assert note.startswith("inputs 1 and 2 are the same in each draw")


def test_a_reference_has_no_note_where_all_inputs_are_drawn(patient_judge: Judge) -> None:
    """Places by lot have the same values in another order."""
    drawn = TASK.replace("torch.zeros(", "torch.rand(").replace("arange(", "randperm(")
    reference = patient_judge.measure(Task(name="drawn", source=drawn))
    assert isinstance(reference, Reference)
    assert () == reference.notes


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("torch.arange(64)", True),
        ("torch.linspace(0, 1, 64)", True),
        ("torch.ones(8, 8).tril()", True),
        ("torch.tensor(0.5)", True),
        ("torch.ones(0)", False),
        ("torch.arange(64).float().sin()", False),  # other kinds of draws vary it
        ("torch.randperm(64)", False),
        ("torch.cat([torch.zeros(100_000), torch.rand(1)])", False),  # no sample shows it
    ],
)
def test_fixed_inputs_are_found(torch: ModuleType, text: str, *, is_kept: bool) -> None:
    """Only where all elements are equal in three draws, and no check varies them."""
    from actors.evaluator.children.tensors.fixed_inputs import FixedInputs

    def draw() -> list[object]:
        return [torch.rand(9), {"x": eval(text, {"torch": torch})}]  # noqa: S307  # one of the above

    found = FixedInputs(draw())
    found.compare(draw())
    assert ((1,) if is_kept else ()) == found.kept(draw)


@pytest.mark.parametrize(
    "text",
    [
        "torch.arange(64)",
        "torch.arange(64).expand(4, 64)",
        "torch.ones(8, 8).tril().T",
        "torch.ones(8, 8).tril().expand(2, 3, 8, 8)",
        "torch.zeros(4, 1).expand(4, 8)",
        "torch.tensor([0, 5, 9, 16])",  # where sequences begin
        "torch.linspace(0, 1, 64)",
        "torch.ones(8, 8, dtype=torch.bool).tril()",
        "torch.ones(4, 8, dtype=torch.bool)",
        "torch.eye(8)",
        "torch.tensor([3, 1, 2])",
        "torch.full((4,), 128)",
        "torch.zeros(2, 4, 8)",
        "torch.tensor(0.5)",
    ],
)
def test_other_values_are_of_the_same_kind(torch: ModuleType, text: str) -> None:
    """An index stays in its range, sorted places stay sorted and cover the same tensor."""
    from actors.evaluator.children.tensors.fixed_inputs import other_values

    x = eval(text, {"torch": torch})  # noqa: S307  # one of the lines above
    changed = other_values(x)
    assert changed is not None
    assert (x.shape, x.stride(), x.dtype) == (changed.shape, changed.stride(), changed.dtype)
    assert not torch.equal(x, changed)
    if not x.is_floating_point():
        assert changed.max() <= x.max()
        assert changed.min() >= min(0, int(x.min())) or x.dtype is torch.bool
    is_sorted = bool((x[..., 1:] >= x[..., :-1]).all()) if x.dim() else False
    if is_sorted and x.dtype is torch.int64 and x.unique().numel() > 1:
        assert (changed[..., 1:] >= changed[..., :-1]).all()
        assert torch.equal(changed[..., [0, -1]], x[..., [0, -1]])


@pytest.mark.parametrize("text", ["torch.tensor(0)", "torch.zeros(4, dtype=torch.long)"])
def test_no_other_values_are_known_of_some(torch: ModuleType, text: str) -> None:
    """Zeros may be places or classes of which there is one."""
    from actors.evaluator.children.tensors.fixed_inputs import other_values

    assert other_values(eval(text, {"torch": torch})) is None  # noqa: S307  # one of the above
