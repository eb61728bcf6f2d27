"""How often eager's integers are others than those that follow from float64.

A quantisation rounds some of a million elements to another side than float64 does, and an honest
kernel does so at others.  Of one draw that is too few to know: in the next one eager has none.  So
the draws are added up, and some are made for that alone.  Runs in the trusted referee.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from actors.evaluator.children import correctness
from actors.evaluator.children.call_form import module_copy
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.children.tensors.tensor_copies import clone

FIRST_SEED = 7  # behind those of the calls that prepare the task
# Before the first comparison, until one has shown something, or so many elements have not.  The
# seconds are for modules that take long: a busy machine makes as many of others.
TRIED_DRAWS, TRIED_ELEMENTS, TRIED_S = 32, 1 << 24, 2.0


class IntegerLosses:
    """What eager's integers lost, by the number of the output."""

    def __init__(self) -> None:
        self._lost: dict[int, int] = {}
        self._seen: dict[int, int] = {}
        self._furthest: dict[int, float] = {}

    def add(self, eager: Sequence[torch.Tensor], exact: Sequence[torch.Tensor | None]) -> None:
        """Count the elements of one draw."""
        for number, (ours, truth) in enumerate(zip(eager, exact, strict=True)):
            if truth is None or not has_integers(ours) or ours.shape != truth.shape:
                continue
            lost = int((ours != truth).sum().item())
            self._lost[number] = self._lost.get(number, 0) + lost
            self._seen[number] = self._seen.get(number, 0) + ours.numel()
            if lost:
                off = correctness.furthest_apart(ours, truth)
                self._furthest[number] = max(off, self._furthest.get(number, 0.0))

    def of(self, number: int) -> tuple[float, float]:
        """Return the share of elements that eager loses, and the largest difference."""
        share = self._lost.get(number, 0) / max(1, self._seen.get(number, 0))
        return share, self._furthest.get(number, 0.0)

    @property
    def seen(self) -> int:
        """How many integers were compared."""
        return sum(self._seen.values())

    @property
    def has_any(self) -> bool:
        """Whether some element was another one than in float64."""
        return any(self._lost.values())


def find_losses(task: TaskModule, outputs: object, seed: int) -> IntegerLosses:
    """Return what eager loses in some draws, until one has shown something.

    `outputs`: of one call, to see whether there are integers at all.
    """
    losses = IntegerLosses()
    began = time.monotonic()
    task.has_integers = any(map(has_integers, tensors_in(outputs)))
    if not task.has_double or not task.has_integers:
        return losses
    for number in range(TRIED_DRAWS):
        drawn = seed + FIRST_SEED + number
        inputs = task.inputs(drawn)
        exact = list(tensors_in(task.double_outputs(clone(inputs), drawn)))
        eager = task.eager_outputs(inputs, drawn, module_copy(task.model))
        losses.add(list(tensors_in(eager)), exact)
        is_enough = losses.has_any or losses.seen >= TRIED_ELEMENTS
        if is_enough or time.monotonic() - began > TRIED_S:
            break
    return losses


def has_integers(tensor: torch.Tensor) -> bool:
    """Whether a tensor is compared exactly: integers and booleans."""
    return bool(tensor.numel()) and not correctness.is_real(tensor)
