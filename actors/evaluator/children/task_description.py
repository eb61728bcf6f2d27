"""Finds out what is known of a task besides its outputs: operations, operators, tolerances.

It runs in the trusted referee.  A part that fails is left out: a task may refuse what its own
`get_inputs` and `forward` never do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import torch
from msgspec.structs import replace

from actors.evaluator.children import correctness, profiler, task_cost, wide_casts
from actors.evaluator.children.call_form import module_copy
from actors.evaluator.children.task_errors import UnsuitableTaskError
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.children.tensors.tensor_copies import clone
from actors.evaluator.ipc.referee_orders import OutputTolerance, TaskDescribed


def describe_task(task: TaskModule, seed: int, floor: float) -> TaskDescribed:
    """Return what is known of `task`; `floor` is the relative error that the user allows."""
    is_cuda = task.device == "cuda"
    described = TaskDescribed(
        tf32_products=is_cuda and task_cost.has_tf32(is_convolution=False),
        tf32_convolutions=is_cuda and task_cost.has_tf32(is_convolution=True),
    )
    inputs = task.inputs(seed)
    # Memory may be short, and torch's dispatch modes may refuse a module in any way: then a part is
    # unknown, and the task can be judged all the same.
    try:
        described = replace(described, tolerances=_tolerances(task, inputs, seed, floor))
        return _with_operations(described, task, inputs)
    except Exception:  # noqa: BLE001
        return described


def _with_operations(
    described: TaskDescribed, task: TaskModule, inputs: list[object]
) -> TaskDescribed:
    model = module_copy(task.model)  # a call may change buffers
    given = clone(inputs)

    def call() -> object:
        return task.call(model, given)

    flops, uncounted = task_cost.count_operations(call, task.device)
    counted = replace(described, flops=flops, uncounted=uncounted)
    calls = profiler.profiled_calls(_seconds(call, task.device) * 1e6)
    if not calls:
        return counted
    with torch.no_grad():
        operators, work = profiler.profile_operations(call, task.device, calls)
    operations = profiler.operation_times(operators)
    is_card = task.device == "cuda"
    return replace(
        counted,
        operations=operations,
        more_operations=operators.more + len(operators.rows) - len(operations),
        device_us=work.whole_us if is_card else None,
        launches=work.launches if is_card else None,
    )


def _seconds(call: Callable[[], object], device: str) -> float:
    with torch.no_grad():
        began = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began


def _tolerances(
    task: TaskModule, inputs: list[object], seed: int, floor: float
) -> tuple[OutputTolerance, ...]:
    before = clone(inputs)
    exact = task.double_outputs(before, seed)
    coarse = _tf32_outputs(task, inputs, seed) if exact is not None else []
    eager = list(tensors_in(task.eager_outputs(clone(inputs), seed)))
    truths = list(tensors_in(exact)) if exact is not None else [None] * len(eager)
    other = coarse if len(coarse) == len(eager) else [None] * len(eager)
    factor = correctness.ERROR_FACTOR * (wide_casts.LEEWAY if task.widens_casts else 1.0)
    return tuple(
        _tolerance(ours, truth, floor, tf32, factor=factor)
        for ours, truth, tf32 in zip(eager, truths, other, strict=True)
    )


def _tf32_outputs(task: TaskModule, inputs: list[object], seed: int) -> list[torch.Tensor]:
    """Return a copy's outputs with float32 products in TF32; [] where they are anyway, or can't be.

    A copy, because a call may change the module's state.
    """
    if task.device != "cuda" or task_cost.has_tf32(is_convolution=False):
        return []
    known = (RuntimeError, TypeError, UnsuitableTaskError)
    with suppress(*known), task_cost.tf32_products(allowed=True):
        return list(tensors_in(task.eager_outputs(clone(inputs), seed, module_copy(task.model))))
    return []


def _tolerance(
    eager: torch.Tensor,
    truth: torch.Tensor | None,
    floor: float,
    tf32: torch.Tensor | None = None,
    *,
    factor: float,
) -> OutputTolerance:
    dtype = str(eager.dtype).removeprefix("torch.")
    if not eager.numel() or not correctness.is_real(eager):
        return OutputTolerance(dtype=dtype)
    rms, allowed = correctness.least_tolerance(eager if truth is None else truth, eager, floor)
    return OutputTolerance(
        dtype=dtype,
        allowed=allowed,
        rms=rms,
        eager_error=None if truth is None else correctness.relative_loss(eager, truth),
        tf32_error=(
            correctness.relative_loss(tf32, truth)
            if truth is not None and tf32 is not None and not torch.equal(tf32, eager)
            else None
        ),
        error_factor=factor,
        is_double=truth is not None,
    )
