"""Whether a step of a module overflows on some inputs, though its outputs are finite.

`exp(-exp(x))` of 88 is zero by way of infinity.  An equal formula may have infinity less infinity
there, and be right wherever the module itself does not overflow.  Runs in the trusted referee.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from actors.evaluator.children.call_form import module_copy
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors.tensor_copies import clone


class _FiniteSteps(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes for each operation whether all of its results are finite."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.are_finite: list[bool] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call an operation of torch."""
        result = func(*args, **(kwargs or {}))
        found = result if isinstance(result, tuple | list) else [result]
        real = [each for each in found if isinstance(each, torch.Tensor) and _is_real(each)]
        self.are_finite.append(all(bool(each.isfinite().all()) for each in real))
        return result


def overflows_more(task: TaskModule, inputs: list[object], plain: list[object], seed: int) -> bool:
    """Whether a step overflows on `inputs` that does not on `plain` ones, as far as is known."""
    # A task may refuse what its own get_inputs never gives it, and so may a dispatch mode.
    try:
        ours, usual = (_finite_steps(task, each, seed) for each in (inputs, plain))
    except Exception:  # noqa: BLE001
        return False
    return any(own and not here for here, own in zip(ours, usual, strict=False))


def _finite_steps(task: TaskModule, inputs: list[object], seed: int) -> list[bool]:
    with _FiniteSteps() as steps:
        task.eager_outputs(clone(inputs), seed, module_copy(task.model))
    found: list[bool] = steps.are_finite
    return found


def _is_real(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and bool(tensor.numel())
