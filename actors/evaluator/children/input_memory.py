"""Where a call of the task's module leaves its inputs' memory: in outputs, in plain attributes."""

from __future__ import annotations

import torch

from actors.evaluator.children.source_import import seed_all
from actors.evaluator.children.task_errors import task_errors_as
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors.held_state import plain_attributes
from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.children.tensors.tensor_copies import clone, storage_address


def find_aliases(
    task: TaskModule, inputs: list[object], seed: int
) -> tuple[tuple[bool, ...], bool]:
    """Return for each output whether it is in an input's memory: a view, or in place.

    The second value says whether an attribute holds an input until the next call: `self.last = x`.
    """
    seed_all(seed)
    given = clone(inputs)
    with task_errors_as("Model.forward"), torch.no_grad():
        returned = task.call(task.model, given)
    inputs_at = set(map(storage_address, tensors_in(given))) - {0}
    held = map(storage_address, plain_attributes(task.model).values())
    outputs = tuple(storage_address(each) in inputs_at for each in tensors_in(returned))
    return outputs, not inputs_at.isdisjoint(held)
