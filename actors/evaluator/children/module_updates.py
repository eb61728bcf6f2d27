"""What calls of the task's module change in its own state: running statistics, for example."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch

from actors.evaluator.children import correctness
from actors.evaluator.children.source_import import seed_all
from actors.evaluator.children.task_errors import task_errors_as
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors import tensor_bytes
from actors.evaluator.children.tensors.tensor_copies import has_same_bytes
from actors.evaluator.ipc.layout_checks import Nest
from actors.evaluator.ipc.referee_orders import Compared, RepeatBlock

InputsOf: TypeAlias = Callable[[int], list[object]]  # of a slot
NUDGE = 1e-6  # some of the last digits of float32


def updated_layout(task: TaskModule) -> Nest:
    """Return the layout of what calls have changed in the state that candidates get."""
    own = task.model.state_dict()
    updated = {
        name: own[name]
        for name, value in task.state.items()
        if not has_same_bytes(own[name], value)
    }
    items = tuple(map(tensor_bytes.layout_of, updated.values()))
    return Nest(kind="dict", keys=tuple(updated), items=items)


def repeat_block(
    task: TaskModule, order: RepeatBlock, inputs_of: InputsOf, region: int
) -> Compared | None:
    """Give the module a candidate's state, and make the calls of a block."""
    _repeat(task, order, inputs_of, region)
    if not order.is_control:
        return None
    first = {name: task.model.state_dict()[name].clone() for name in order.names}
    _repeat(task, order, inputs_of, region, factor=1 + NUDGE)
    # Asked for again: a call may have put another tensor in a buffer's place.
    return _compared(task.model.state_dict(), first)


def _repeat(
    task: TaskModule, order: RepeatBlock, inputs_of: InputsOf, region: int, factor: float = 1.0
) -> None:
    own = task.model.state_dict()
    layout = tensor_bytes.layout_of({name: own[name] for name in order.names})
    with torch.no_grad(), tensor_bytes.open_value(layout, region, task.device) as value:
        for name, given in zip(order.names, tensor_bytes.tensors_in(value), strict=True):
            own[name].copy_(given * factor if given.is_floating_point() else given)
    if order.seed is not None:
        seed_all(order.seed)
    with task_errors_as("Model.forward"), torch.no_grad():
        for slot in range(order.calls):
            task.call(task.model, inputs_of(slot))


def compare_state(task: TaskModule, names: Sequence[str], region: int) -> Compared:
    """Compare the bytes of a candidate's tensors of these names with the module's own."""
    own = task.model.state_dict()
    expected = {name: own[name] for name in names}
    layout = tensor_bytes.layout_of(expected)
    with tensor_bytes.open_value(layout, region, task.device) as value:
        return _compared(dict(zip(names, tensor_bytes.tensors_in(value), strict=True)), expected)


def _compared(got: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> Compared:
    for name, own in expected.items():
        found = correctness.compare(got[name], own, None, f"buffer {name}")
        if found.reason:
            return Compared(reason=found.reason, max_error=found.max_error)
    return Compared()
