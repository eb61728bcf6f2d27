"""What calls of the task's module change in its own state: running statistics, for example."""

from __future__ import annotations

from collections.abc import Sequence

from actors.evaluator.children import correctness
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors import tensor_bytes
from actors.evaluator.children.tensors.tensor_copies import has_same_bytes
from actors.evaluator.ipc.layout_checks import Nest
from actors.evaluator.ipc.referee_orders import Compared


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


def compare_state(task: TaskModule, names: Sequence[str], region: int) -> Compared:
    """Compare the bytes of a candidate's tensors of these names with the module's own."""
    own = task.model.state_dict()
    expected = {name: own[name] for name in names}
    layout = tensor_bytes.layout_of(expected)
    with tensor_bytes.open_value(layout, region, task.device) as value:
        for name, got in zip(names, tensor_bytes.tensors_in(value), strict=True):
            found = correctness.compare(got, expected[name], None, f"buffer {name}")
            if found.reason:
                return Compared(reason=found.reason, max_error=found.max_error)
    return Compared()
