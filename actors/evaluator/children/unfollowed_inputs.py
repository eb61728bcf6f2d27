"""Parts of inputs that no output follows: what a candidate makes of them is not checked.

A recurrence that forgets returns the same for any early steps, and a product of numbers below one
for any late factors.  Leaving them out is right on all draws that the judge makes, and may be wrong
with other parameters or inputs, so a note says which they are.  Runs in the trusted referee.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import torch

from actors.evaluator.children import small_parts
from actors.evaluator.children.call_form import module_copy
from actors.evaluator.children.input_kinds import accepts
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.children.tensors.tensor_copies import clone
from actors.evaluator.children.tensors.value_kinds import is_free
from actors.evaluator.ipc.orders import InputKind
from actors.evaluator.ipc.referee_orders import TryInputKind

MOST_BYTES, MOST_S = 1 << 28, 1.0  # of inputs, and for all calls
SLOW_CALL_S = 0.05  # of the module: of slower ones nothing is said
LEAST_SIZE = 32  # of a dimension whose halves are looked at
KINDS: tuple[InputKind, ...] = ("plain", "uneven", "shifted", "near one")


class _TimeIsUpError(Exception):
    """No more calls."""


class _Pair(NamedTuple):
    """Two draws of one kind, and what the module returns for the first."""

    inputs: list[object]
    outputs: list[torch.Tensor]
    others: list[torch.Tensor]


class _ChangedHalves:
    """Calls of the module with one half of an input from another draw of the same kind."""

    def __init__(self, task: TaskModule, seed: int, inputs: list[object]) -> None:
        """`inputs`: the task's own draw of this seed."""
        self._task, self._seed, self._inputs = task, seed, inputs
        self._end = time.monotonic() + MOST_S
        self._pairs: list[_Pair] = []
        self._more = self._drawn_pairs()

    def decide_something(self, number: int, dim: int, begin: int, count: int) -> bool:
        """Whether other values there change an output by more than the tolerance."""
        return any(self._differs(pair, number, dim, begin, count) for pair in self._known())

    def _known(self) -> Iterator[_Pair]:
        yield from self._pairs
        for pair in self._more:
            self._pairs.append(pair)
            yield pair

    def _drawn_pairs(self) -> Iterator[_Pair]:
        for kind in KINDS:
            self._require_time()
            is_own = kind == "plain"
            if is_own or accepts(self._task, TryInputKind(kind=kind, seed=self._seed)):
                inputs = self._inputs if is_own else self._task.inputs(self._seed, kind)
                others = list(tensors_in(self._task.inputs(self._seed + 1, kind)))
                yield _Pair(inputs, self._outputs(clone(inputs)), others)

    def _differs(self, pair: _Pair, number: int, dim: int, begin: int, count: int) -> bool:
        self._require_time()
        given = clone(pair.inputs)
        part = list(tensors_in(given))[number].narrow(dim, begin, count)
        part.copy_(pair.others[number].narrow(dim, begin, count))
        return any(
            one.shape != before.shape or bool(small_parts.compare(one, before, None, "").reason)
            for one, before in zip(self._outputs(given), pair.outputs, strict=True)
        )

    def _outputs(self, inputs: list[object]) -> list[torch.Tensor]:
        began, model = time.monotonic(), module_copy(self._task.model)
        outputs = list(tensors_in(self._task.eager_outputs(inputs, self._seed, model)))
        if time.monotonic() - began > SLOW_CALL_S:
            raise _TimeIsUpError
        return outputs

    def _require_time(self) -> None:
        if time.monotonic() > self._end:
            raise _TimeIsUpError


def unfollowed_notes(task: TaskModule, seed: int) -> tuple[str, ...]:
    """Return a line for each half of an input, along a dimension, that no output follows.

    Of a task whose calls follow from inputs and state alone.
    """
    lines: list[str] = []
    # A task may refuse inputs of two draws, and memory may be short.
    with suppress(Exception):
        inputs = task.inputs(seed)
        tensors = list(tensors_in(inputs))
        if sum(each.nbytes for each in tensors) <= MOST_BYTES:
            lines.extend(_lines(_ChangedHalves(task, seed, inputs), tensors))
    return tuple(lines)


def _lines(halves: _ChangedHalves, tensors: list[torch.Tensor]) -> Iterator[str]:
    for number, tensor in enumerate(tensors):
        for dim, size in enumerate(tensor.shape) if is_free(tensor) else ():
            half = size // 2
            for name, begin in (("first", 0), ("last", size - half)):
                if size >= LEAST_SIZE and not halves.decide_something(number, dim, begin, half):
                    yield (
                        f"no output follows the {name} half of input {number} along dimension "
                        f"{dim}: what ModelNew makes of it is not checked"
                    )
