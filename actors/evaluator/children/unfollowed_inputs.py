"""Parts of inputs that no output follows: what a candidate makes of them is not checked.

A recurrence that forgets returns the same for any early steps, and a product of numbers below one
for any late factors.  Leaving them out is right on all draws that the judge makes, and may be wrong
with other parameters or inputs, so a note says which they are.  Runs in the trusted referee.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from actors.evaluator.children import correctness
from actors.evaluator.children.call_form import module_copy
from actors.evaluator.children.input_kinds import accepts
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.children.tensors.tensor_copies import clone
from actors.evaluator.children.tensors.value_kinds import is_free
from actors.evaluator.ipc.orders import InputKind
from actors.evaluator.ipc.referee_orders import TryInputKind

MOST_BYTES, MOST_S = 1 << 28, 1.0  # of inputs, and for all calls
LEAST_SIZE = 32  # of a dimension whose halves are looked at
KINDS: tuple[InputKind, ...] = ("uneven", "shifted", "near one")  # where the task's own draws fail


class _ChangedHalves:
    """Calls of the module with one half of an input from another draw."""

    def __init__(self, task: TaskModule, seed: int) -> None:
        self._task, self._seed = task, seed
        self.inputs = task.inputs(seed)
        self.size = sum(each.nbytes for each in tensors_in(self.inputs))
        self._others: list[list[torch.Tensor]] = []
        self._more = self._draws()
        self._expected: list[torch.Tensor] = []

    def decide_something(self, number: int, dim: int, begin: int, count: int) -> bool:
        """Whether some other values there change an output by more than the tolerance."""
        self._expected = self._expected or self._outputs(clone(self.inputs))
        return any(self._differs(other, number, dim, begin, count) for other in self._known())

    def _known(self) -> Iterator[list[torch.Tensor]]:
        yield from self._others
        for drawn in self._more:
            self._others.append(drawn)
            yield drawn

    def _draws(self) -> Iterator[list[torch.Tensor]]:
        yield list(tensors_in(self._task.inputs(self._seed + 1)))
        for kind in KINDS:
            if accepts(self._task, TryInputKind(kind=kind, seed=self._seed + 1)):
                yield list(tensors_in(self._task.inputs(self._seed + 1, kind)))

    def _differs(
        self, other: list[torch.Tensor], number: int, dim: int, begin: int, count: int
    ) -> bool:
        given = clone(self.inputs)
        part = list(tensors_in(given))[number].narrow(dim, begin, count)
        part.copy_(other[number].narrow(dim, begin, count))
        pairs = zip(self._outputs(given), self._expected, strict=True)
        return any(
            one.shape != before.shape or bool(correctness.compare(one, before, None, "").reason)
            for one, before in pairs
        )

    def _outputs(self, inputs: list[object]) -> list[torch.Tensor]:
        model = module_copy(self._task.model)
        return list(tensors_in(self._task.eager_outputs(inputs, self._seed, model)))


def unfollowed_notes(task: TaskModule, seed: int) -> tuple[str, ...]:
    """Return a line for each half of an input, along a dimension, that no output follows.

    Of a task whose calls follow from inputs and state alone.
    """
    # A task may refuse inputs of two draws, and memory may be short.
    try:
        return tuple(_lines(_ChangedHalves(task, seed)))
    except Exception:  # noqa: BLE001
        return ()


def _lines(halves: _ChangedHalves) -> Iterator[str]:
    began = time.monotonic()
    if halves.size > MOST_BYTES:
        return
    for number, tensor in enumerate(tensors_in(halves.inputs)):
        sizes = enumerate(tensor.shape) if is_free(tensor) else ()
        for dim, size in sizes:
            half = size // 2
            for name, begin in (("first", 0), ("last", size - half)):
                if size < LEAST_SIZE or time.monotonic() - began > MOST_S:
                    continue
                if not halves.decide_something(number, dim, begin, half):
                    yield (
                        f"no output follows the {name} half of input {number} along dimension "
                        f"{dim}: what ModelNew makes of it is not checked"
                    )
