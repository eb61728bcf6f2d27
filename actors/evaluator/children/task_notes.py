"""What a reader of a task's figures has to know of its calls."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from actors.evaluator.children.correctness import is_real
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.task_randomness import randomness_notes
from actors.evaluator.children.tensors.fixed_inputs import fixed_notes
from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.children.unfollowed_inputs import unfollowed_notes


def task_notes(
    task: TaskModule,
    outputs: object,
    fixed: Sequence[int],
    seed: int,
    *,
    is_steady: bool,
    is_repeated: bool,
) -> tuple[str, ...]:
    """Return one line for each.

    `fixed`: the inputs that are the same in each draw; `seed`: of a draw of its own.
    """
    return (
        *randomness_notes(is_deterministic=is_steady, is_repeated=is_repeated),
        *task.form_notes,
        *fixed_notes(fixed),
        *unchecked([*tensors_in(outputs)]),
        *(unfollowed_notes(task, seed + 5) if is_steady else ()),
    )


def unchecked(outputs: Sequence[torch.Tensor]) -> tuple[str, ...]:
    """Return a note on outputs of the reference that every other output would be equal to.

    NaN where the reference has NaN counts as right, so an output that is all NaN checks nothing.
    """
    blank = [
        number
        for number, each in enumerate(outputs)
        if each.numel() and is_real(each) and bool(each.isnan().all())
    ]
    if not blank:
        return ()
    if len(blank) == len(outputs):
        what = "output is" if len(outputs) == 1 else "outputs are"
        return (f"the reference's {what} all NaN: nothing is checked",)
    which = ", ".join(map(str, blank))
    return (f"output {which} of the reference is all NaN: nothing of it is checked",)
