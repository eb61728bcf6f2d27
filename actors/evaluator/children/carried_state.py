"""Which tensors in plain attributes each call of the task's module changes: a recurrent state.

No state dict has them, so a winner's guard has to hand them from call to call.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from actors.evaluator.children.call_form import module_copy
from actors.evaluator.children.source_import import seed_all
from actors.evaluator.children.task_errors import UnsuitableTaskError, task_errors_as
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors.tensor_bytes import layout_of
from actors.evaluator.children.tensors.tensor_copies import clone, has_same_bytes
from actors.evaluator.ipc.layout_checks import Leaf, Nest

CALLS = 2  # the first one may only move a constant to the inputs' device


def find_carried(task: TaskModule, seed: int) -> Nest | None:
    """Return the layout of the tensors that each call changes, a dictionary by name; None: no such.

    As the last call left them: a guard finds out whether a winner can carry them.
    """
    if not tensor_attributes(task.model):  # it has made calls
        return None
    try:
        model = module_copy(task.model)
    except (
        UnsuitableTaskError
    ):  # no memory: the guard takes a changed attribute for a user's change
        return None
    with task_errors_as("Model.forward"), torch.no_grad():
        for number in range(CALLS):
            before = tensor_attributes(model)
            values = {name: clone(value.detach()) for name, value in before.items()}
            inputs = task.inputs(seed + 3 + number)
            seed_all(seed)
            task.call(model, inputs)
    found = {
        name: after
        for name, after in tensor_attributes(model).items()
        if isinstance(layout_of(after), Leaf)
        and (name not in before or _is_changed(before[name], values[name], after))
    }
    items = tuple(map(layout_of, found.values()))
    return Nest(kind="dict", keys=tuple(found), items=items) if found else None


def tensor_attributes(module: torch.nn.Module) -> Mapping[str, torch.Tensor]:
    """Return the tensors in plain attributes of all submodules, by name."""
    return {
        f"{path}.{key}" if path else key: value
        for path, part in module.named_modules()
        for key, value in vars(part).items()
        if isinstance(value, torch.Tensor)
    }


def _is_changed(before: torch.Tensor, value: torch.Tensor, after: torch.Tensor) -> bool:
    return after is not before or not has_same_bytes(after.detach(), value)
