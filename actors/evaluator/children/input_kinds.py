"""Which kinds of draws a task bears, besides its own: the trusted referee tries each."""

from __future__ import annotations

import time

import torch

from actors.evaluator.children.correctness import ERROR_FACTOR
from actors.evaluator.children.inner_overflows import overflows_more
from actors.evaluator.children.integer_losses import TRIED_S
from actors.evaluator.children.kinds_asked_for import is_asked_for
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.children.tied_elements import decided_by_ties
from actors.evaluator.ipc.orders import InputKind
from actors.evaluator.ipc.referee_orders import TryInputKind

TRIED_DRAWS = 4  # few elements of a draw may be equal, and not in the same row


def accepts(task: TaskModule, order: TryInputKind) -> bool:
    """Whether the task works on inputs of this kind, and they differ from plain ones."""
    kind, seed = order.kind, order.seed
    plain = task.inputs(seed)
    if not is_asked_for(kind, task, plain, seed):
        return False
    other = task.inputs(seed, kind)
    if all(map(torch.equal, tensors_in(plain), tensors_in(other))):
        return False
    if kind == "large" and overflows_more(task, other, plain, seed):
        return False
    del plain  # what they take is free
    return task.runs_on(other, seed) and not (task.has_integers and _has_new_ties(task, kind, seed))


def _has_new_ties(task: TaskModule, kind: InputKind, seed: int) -> bool:
    """Whether equal elements decide integers that they do not decide in the task's own draws."""
    began = time.monotonic()
    for number in range(TRIED_DRAWS):
        if number and time.monotonic() - began > TRIED_S:
            break
        drawn = seed + number
        here = decided_by_ties(task, task.inputs(drawn, kind), drawn)
        if here and here > ERROR_FACTOR * decided_by_ties(task, task.inputs(drawn), drawn):
            return True
    return False
