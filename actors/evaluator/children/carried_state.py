"""Which tensors in plain attributes each call of the task's module changes: a recurrent state.

No state dict has them, so a winner's guard has to hand them from call to call.  Where they decide
outputs, the judge gives them to both sides before timed blocks, as it does with buffers.
"""

from __future__ import annotations

import torch

from actors.evaluator.children.call_form import module_copy
from actors.evaluator.children.source_import import seed_all
from actors.evaluator.children.task_errors import UnsuitableTaskError, task_errors_as
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.task_randomness import follows_from
from actors.evaluator.children.tensors.held_state import plain_attributes, tensor_attributes
from actors.evaluator.children.tensors.tensor_bytes import layout_of
from actors.evaluator.children.tensors.tensor_copies import clone, has_same_bytes
from actors.evaluator.ipc.layout_checks import Leaf, Nest

NO_TENSORS = Nest(kind="dict", items=())
MOST_TRIED = 16  # attributes without which it is tried: each takes nine calls
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


def _is_changed(before: torch.Tensor, value: torch.Tensor, after: torch.Tensor) -> bool:
    return after is not before or not has_same_bytes(after.detach(), value)


def find_deciding(task: TaskModule, seed: int, updated: Nest) -> Nest:
    """Return the layout of plain attributes that decide outputs, and keep their values.

    Tensors and numbers that calls change.  `updated`: the parameters and buffers that calls change.
    None are returned where outputs do not follow from all of these.
    """
    begin = {name: clone(each) for name, each in plain_attributes(task.model).items()}
    ends = _after_calls(task, seed)
    names = [
        name
        for name, value in begin.items()
        if all(name in end for end in ends)
        and isinstance(layout_of(value), Leaf)
        and all(layout_of(value) == layout_of(end[name]) for end in ends)
        and not all(has_same_bytes(value, end[name]) for end in ends)
    ]
    if not names or not follows_from(task, seed, [*updated.keys, *names]):
        return NO_TENSORS
    for name in list(names[:MOST_TRIED]):
        others = [each for each in names if each != name]
        if others and follows_from(task, seed, [*updated.keys, *others], [name]):
            names = others
    task.attributes = {name: begin[name] for name in names}
    items = tuple(layout_of(begin[name]) for name in names)
    return Nest(kind="dict", keys=tuple(names), items=items)


def _after_calls(task: TaskModule, seed: int) -> list[dict[str, torch.Tensor]]:
    """Return the plain attributes of a copy of the module after each of some calls.

    One that takes turns is after two calls what it was.
    """
    model, found = module_copy(task.model), []
    with task_errors_as("Model.forward"), torch.no_grad():
        for number in range(CALLS):
            inputs = task.inputs(seed + 3 + number)
            seed_all(seed)
            task.call(model, inputs)
            held = plain_attributes(model)
            found.append({name: clone(value) for name, value in held.items()})
    return found
