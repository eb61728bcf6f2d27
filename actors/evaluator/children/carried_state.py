"""Which tensors in plain attributes each call of the task's module changes: a recurrent state.

No state dict has them, so a winner's guard has to hand them from call to call.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch

from actors.evaluator.children.source_import import seed_all
from actors.evaluator.children.task_errors import task_errors_as
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors.tensor_bytes import layout_of
from actors.evaluator.children.tensors.tensor_copies import clone, has_same_bytes
from actors.evaluator.ipc.layout_checks import Nest

CALLS = 2  # the first one may only move a constant to the inputs' device


def find_carried(task: TaskModule, seed: int) -> Nest | None:
    """Return the layout of the tensors that each call changes, a dictionary by name; None: no such.

    Left out: what requires a gradient, changes its shape or dtype, or is not contiguous.  No winner
    can carry it.
    """
    if not tensor_attributes(task.model):
        return None
    with task_errors_as("Model.forward"), torch.no_grad():
        model = copy.deepcopy(task.model)
        for number in range(CALLS):
            before = tensor_attributes(model)
            values = {name: clone(value.detach()) for name, value in before.items()}
            inputs = task.inputs(seed + 3 + number)
            seed_all(seed)
            task.call(model, inputs)
    found = {
        name: after
        for name, after in tensor_attributes(model).items()
        if name in before
        and layout_of(after) == layout_of(values[name])
        and _is_plain(after)
        and _is_changed(before[name], values[name], after)
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


def _is_plain(value: torch.Tensor) -> bool:
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and value.is_contiguous()
        and not value.requires_grad
    )
