"""What a reader of a task's figures has to know of its calls."""

from __future__ import annotations

from collections.abc import Sequence

from actors.evaluator.children import correctness
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.task_randomness import randomness_notes
from actors.evaluator.children.tensors.fixed_inputs import fixed_notes
from actors.evaluator.children.tensors.tensor_bytes import tensors_in


def task_notes(
    task: TaskModule,
    outputs: object,
    fixed: Sequence[int],
    *,
    is_deterministic: bool,
    is_repeated: bool,
) -> tuple[str, ...]:
    """Return one line for each; `fixed`: the inputs that are the same in each draw."""
    return (
        *randomness_notes(is_deterministic=is_deterministic, is_repeated=is_repeated),
        *task.form_notes,
        *fixed_notes(fixed),
        *correctness.unchecked([*tensors_in(outputs)]),
    )
