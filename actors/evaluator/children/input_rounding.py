"""What the task's own module returns for a draw's inputs with other last digits.

One output of eager is one sample of its error.  Where a single element decides the tolerance (the
inverse of the one matrix of thousands that is nearly singular, two elements of a sort that are
equal by chance), eager is by chance far nearer to the truth there than what is right in general,
and in float64 there is no truth to measure it by.  So before an output is called wrong, the module
is called on inputs that are rounded otherwise: what that changes measures its error, too.  Runs in
the trusted referee.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch

from actors.evaluator.children.call_form import module_copy
from actors.evaluator.children.random_state import RandomStart
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.children.tensors.tensor_copies import map_tensors
from actors.evaluator.children.tensors.value_kinds import is_free

CALLS, CALLS_S = 8, 2.0  # two equal elements change places in four calls of ten
MOST_BYTES = 1 << 28  # of inputs and outputs that are held: the candidate needs the card's memory
ROUNDINGS = 2  # by at most so many an element changes, up or down
# Halves have too few digits: a change of the last one would allow errors of some per cent.
DTYPES = (torch.float32, torch.float64)
# Of the first elements.  Where more are equal they are so by design, and `a == b` means something.
DISTINCT_SHARE, DISTINCT_ELEMENTS = 0.98, 1 << 16


class RoundedInputs:
    """Calls of the module on one draw's inputs, each with other last digits."""

    def __init__(self, task: TaskModule, inputs: list[object], start: RandomStart) -> None:
        """`inputs`: to which no call writes; `start`: at which the draw's call began."""
        self._task = task
        self._inputs = inputs
        self._start = start
        self._outputs: list[list[torch.Tensor]] | None = None

    def outputs(self, number: int, like: torch.Tensor) -> list[torch.Tensor]:
        """Return what output `number` was in these calls, as far as it has the shape of `like`."""
        if self._outputs is None:
            self._outputs = list(self._calls())
        found = [each[number] for each in self._outputs if number < len(each)]
        return [each for each in found if each.shape == like.shape and each.dtype == like.dtype]

    def forget_inputs(self) -> None:
        """Make no calls from now on; what earlier ones have returned stays.

        An output that was right without them still is.
        """
        self._inputs = []

    def _calls(self) -> Iterator[list[torch.Tensor]]:
        began, held = time.monotonic(), _bytes_of(self._inputs)
        # A task may refuse inputs that its own get_inputs never draws, and memory may be short.
        try:
            for number in range(CALLS):
                is_late = number > 0 and time.monotonic() - began > CALLS_S
                if is_late or held > MOST_BYTES:
                    return
                inputs = with_other_digits(self._inputs, number)
                if inputs is None:
                    return
                model = module_copy(self._task.model)
                found = self._task.eager_outputs(inputs, self._start, model)
                held += _bytes_of(found)
                yield list(tensors_in(found))
        except Exception:  # noqa: BLE001
            return


def _bytes_of(values: object) -> int:
    return sum(each.nbytes for each in tensors_in(values))


def with_other_digits(inputs: list[object], number: int) -> list[object] | None:
    """Return inputs whose elements are rounded otherwise; None where that would mean something.

    `number`: which ones.  Zeros and signs stay.
    """
    free = [each for each in tensors_in(inputs) if each.dtype in DTYPES and is_free(each)]
    if not free or not _are_distinct(free):
        return None
    chosen = {id(each) for each in free}
    lots = torch.Generator().manual_seed(number)  # the module's calls draw from their own

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in chosen:
            return tensor.clone()
        times = torch.randint(
            -ROUNDINGS, ROUNDINGS + 1, tensor.shape, generator=lots, dtype=torch.int8
        )
        factor = 1 + times.to(tensor.dtype) * torch.finfo(tensor.dtype).eps
        return tensor * factor.to(tensor.device)

    return [map_tensors(each, rounded) for each in inputs]


def _are_distinct(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether elements, of all tensors together, are equal by chance only."""
    first = [each.detach().reshape(-1)[:DISTINCT_ELEMENTS].double().cpu() for each in tensors]
    values = torch.cat(first)
    return bool(torch.unique(values).numel() >= DISTINCT_SHARE * values.numel())
