"""The proof of a task, before anything is spent on it.

On recorded inputs and with the module's own weights the task returns what the module returned, or
differs no more than the module differs from itself.  A second call returns the same.  It takes no
longer than the module.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch

from actors.adopt.model.call_layouts import CallKind, as_called, tensors_of
from actors.adopt.model.host_clocks import working_seconds
from actors.adopt.model.model_file import synchronize
from actors.adopt.tasks.operation_text import UntranslatableError
from actors.adopt.tasks.task_text import TaskText

TIMED_S = 0.3  # for one series of calls
LEAST_CALLS, MOST_CALLS = 5, 2000
SERIES = 3
ROUNDING = 4.0  # units of a dtype's rounding that the order of operations may cost


class CallTimes(msgspec.Struct, frozen=True):
    """The times of a call in µs; on a card those of its kernels."""

    task_us: float = 0.0  # the task alone, its inputs in caches
    task_cold_us: float = 0.0  # the same, its inputs in no cache
    module_us: float = 0.0  # the module itself alone, in turns with the task
    in_model_us: float = 0.0  # the module in the model

    @property
    def own_part(self) -> float:
        """The part of the time in the model that is the module's own.

        The rest is what the call finds around it, such as cold caches, and no kernel saves it.
        """
        alone_us = max(self.task_us, self.task_cold_us, self.module_us)
        return min(alone_us / self.in_model_us, 1.0) if self.in_model_us else 1.0


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured."""

    sets: int  # recorded calls that were compared
    is_equal: bool  # bit for bit, on all of them
    error: float  # largest difference from the recorded outputs, relative to their largest value
    own_noise: float  # the same for the module itself, called again
    times: CallTimes = CallTimes()


def load_task(source: str, name: str) -> dict[str, Any]:
    """Run a task's source; return its names."""
    names: dict[str, Any] = {"__name__": f"task_{name}"}
    exec(compile(source, f"<{name}>", "exec"), names)  # noqa: S102  # written by this project
    return names


def bound_task(names: dict[str, Any], module: torch.nn.Module, state: dict[str, str]) -> Any:
    """Return the task's Model with the parameters and buffers of `module` in place of its own."""
    model = names["Model"]()
    for attribute, path in state.items():
        owner, _, key = path.rpartition(".")
        part = module.get_submodule(owner)
        kind = "_parameters" if key in part._parameters else "_buffers"
        getattr(model, kind)[attribute] = getattr(part, kind)[key]
    for name, buffer in model._buffers.items():
        if name not in state:
            device = next(iter(tensors_of([*module.parameters(), *module.buffers()])), buffer)
            model._buffers[name] = buffer.to(device.device)
    return model


def module_as_called(module: torch.nn.Module, kind: CallKind) -> Callable[..., Any]:
    """Return a module as it is called in the model: under autocast, where calls were."""
    if not kind.autocast_dtype:
        return module

    def under_autocast(*args: Any, **kwargs: Any) -> Any:
        with as_called(kind):
            return module(*args, **kwargs)

    return under_autocast


def compare(
    task: Any,
    module: Callable[..., Any],
    call: dict[str, Any],
    text: TaskText,
    wanted: Sequence[bool] | None = None,
) -> Proof:
    """Compare one recorded call; raise UntranslatableError when the task is not the module.

    `wanted`: in a training step, for each tensor of the call whether its gradient is wanted; the
    gradients of the task and of the module are then compared, too.
    """
    expected = list(tensors_of(call["output"]))
    given = list(tensors_of((call["args"], call["kwargs"])))
    chosen = [given[number] for number in text.inputs]

    def of_module() -> Any:
        return module(*call["args"], **call["kwargs"])

    def of_task() -> list[torch.Tensor]:
        results = list(tensors_of(task(*chosen)))  # one that the module returns twice is there once
        return [results[number] for number in text.outputs if number >= 0]

    with torch.no_grad():
        again, first, second = (list(tensors_of(run())) for run in (of_module, of_task, of_task))
    if wanted is not None:
        leaves = [tensor for tensor, is_wanted in zip(given, wanted, strict=True) if is_wanted]
        leaves = [*(leaf.requires_grad_() for leaf in leaves), *_trained(task)]
        expected += _gradients(of_module, leaves)
        again += _gradients(of_module, leaves)
        first += _gradients(of_task, leaves)
        second += _gradients(of_task, leaves)
    return proof_of(expected, again, first, second)


def proof_of(
    expected: Sequence[torch.Tensor],
    again: Sequence[torch.Tensor],
    first: Sequence[torch.Tensor],
    second: Sequence[torch.Tensor],
) -> Proof:
    """Return the differences of a call; raise UntranslatableError for too large ones.

    `expected`, `again`: what the module returned, and when it was called again.  `first`, `second`:
    what the task returned.
    """
    if [tuple(each.shape) for each in first] != [tuple(each.shape) for each in expected]:
        raise UntranslatableError("the task's result has other shapes than the module's")
    noise = max(map(difference, again, expected), default=0.0)
    error = max(map(difference, first, expected), default=0.0)
    repeated = max(map(difference, second, first), default=0.0)
    allowed = max(2 * noise, ROUNDING * max(map(_rounding, expected), default=0.0))
    if not error <= allowed:
        raise UntranslatableError(
            f"the task differs from the recorded output by {error:.2g} of its largest value, the"
            f" module from itself by {noise:.2g}"
        )
    if not repeated <= allowed:
        raise UntranslatableError(f"a second call differs from the first by {repeated:.2g}")
    is_equal = all(map(torch.equal, first, expected))
    return Proof(sets=1, is_equal=is_equal, error=error, own_noise=noise)


def _trained(task: Any) -> list[torch.Tensor]:
    """Return the parameters of a bound task, which are the module's own, that are trained."""
    return [each for each in task.parameters() if each.requires_grad]


def _gradients(run: Callable[[], Any], leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the gradients of `leaves` for drawn gradients of the outputs; zeros where none is."""
    with torch.enable_grad():
        outputs = [each for each in tensors_of(run()) if each.requires_grad]
    generator = torch.Generator().manual_seed(0)
    drawn = [
        torch.randn(each.shape, generator=generator).to(each.device, each.dtype) for each in outputs
    ]
    if not outputs or not leaves:
        return []
    found = torch.autograd.grad(outputs, leaves, drawn, allow_unused=True)
    return [
        torch.zeros_like(leaf) if gradient is None else gradient
        for gradient, leaf in zip(found, leaves, strict=True)
    ]


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference, relative to the largest finite value of `other`."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return float("inf")
    if not one.numel() or torch.equal(one, other):
        return 0.0
    one, other = one.double(), other.double()
    finite = torch.isfinite(other)
    if not torch.equal(one[~finite].nan_to_num(), other[~finite].nan_to_num()):
        return float("inf")
    if not bool(finite.any()):
        return 0.0
    scale = float(other[finite].abs().max()) or 1.0
    apart = float((one[finite] - other[finite]).abs().max()) / scale
    return apart if apart == apart else float("inf")


def combined(proofs: Sequence[Proof]) -> Proof:
    """Return the worst of several comparisons."""
    return Proof(
        sets=len(proofs),
        is_equal=all(proof.is_equal for proof in proofs),
        error=max(proof.error for proof in proofs),
        own_noise=max(proof.own_noise for proof in proofs),
    )


def timed_seconds() -> float:
    """Return for how many seconds calls are timed."""
    return SERIES * TIMED_S


def calls_us(sides: Sequence[Sequence[Callable[[], object]]], device: torch.device) -> list[float]:
    """Return the time of a call on each side; the sides take turns, and on each its calls.

    The lowest quartile of some series: other programs only ever add time.  A series ends with its
    time; where others make each call slow, it has a few calls.
    """
    clock = working_seconds if device.type == "cpu" else time.perf_counter
    turns = [itertools.cycle(calls) for calls in sides]
    least = [float("inf")] * len(sides)
    for _ in range(SERIES):
        times: list[list[float]] = [[] for _ in sides]
        until = time.perf_counter() + TIMED_S
        while len(times[0]) < LEAST_CALLS or (
            time.perf_counter() < until and len(times[0]) < MOST_CALLS
        ):
            for turn, spent in zip(turns, times, strict=True):
                call = next(turn)
                begun = clock()
                call()
                synchronize(device)
                spent.append((clock() - begun) * 1e6)
        quartiles = [sorted(spent)[len(spent) // 4] for spent in times]
        least = list(map(min, least, quartiles))
    return least


def _rounding(tensor: torch.Tensor) -> float:
    return float(torch.finfo(tensor.dtype).eps) if tensor.dtype.is_floating_point else 0.0
