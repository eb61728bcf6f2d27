"""What a step gives: the tensors that it returns, the model's first outputs, and gradients.

A generate loop returns token numbers, which differ from one wrong word on and say little before.
So the outputs of the model's first calls in each step are compared, too, as far as their inputs are
equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import torch

from actors.adopt.model.call_layouts import tensors_of
from actors.adopt.model.model_file import Batch, ModelFile
from actors.adopt.model.model_state import KeptState
from actors.adopt.stage.errors import AdoptError

MOST_CALLS = 8  # of the model in one step, whose outputs are kept
MOST_LATER_BYTES = 64 << 20  # of the outputs of all of them but the first


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the model inside of a step."""

    numbers: list[torch.Tensor]  # inputs that are whole numbers, such as tokens
    outputs: list[torch.Tensor]


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """Copies on the host of what one step gave."""

    outputs: list[torch.Tensor]
    calls: list[ModelCall] = msgspec.field(default_factory=list)  # the first few
    gradients: dict[str, torch.Tensor] = msgspec.field(default_factory=dict)  # by parameter

    @property
    def first_call(self) -> list[torch.Tensor]:
        """The outputs of the model's first call."""
        return self.calls[0].outputs if self.calls else []

    def places(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield every tensor with a name for people; of the model's calls those of the first."""
        for number, tensor in enumerate(self.outputs):
            yield f"output {number}", tensor
        for number, tensor in enumerate(self.first_call):
            yield f"output {number} of the model's first call", tensor
        for name, tensor in self.gradients.items():
            yield f"the gradient of {name}", tensor

    def scores(self) -> list[torch.Tensor]:
        """Return the tensors that may be logits: not gradients."""
        return [*self.outputs, *self.first_call]


def step_results(
    file: ModelFile, model: torch.nn.Module, batches: Sequence[Batch], state: KeptState
) -> list[StepResult]:
    """Run a step for each batch, all from the kept state and with the same random draws.

    Raises AdoptError for a step without any tensor: a wrong result would not be seen.
    """
    found = []
    state.restore()
    for number, batch in enumerate(batches):
        torch.manual_seed(0)
        with _observed(model) as seen:
            returned = file.step(model, batch)
        outputs = [_copied(tensor) for tensor in tensors_of(returned)]
        calls = seen.calls if file.has_step else []
        state.restore()
        if not (outputs or any(call.outputs for call in calls) or seen.gradients):
            raise AdoptError(
                f"{file.path}: step() with batch {number} returns no tensor, and the model neither:"
                " return the outputs, for a wrong result would not be seen"
            )
        result = StepResult(outputs=outputs, calls=calls, gradients=seen.gradients)
        found.append(result)
    return found


def has_backward(file: ModelFile, model: torch.nn.Module, batch: Batch) -> bool:
    """Run one step; return whether gradients of parameters were accumulated in it."""
    with _observed(model) as seen:
        file.step(model, batch)
    return bool(seen.gradients)


class _Observed:
    """The first calls of a model, and the gradients that were accumulated."""

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []
        self.gradients: dict[str, torch.Tensor] = {}
        self.later_bytes = 0
        self.is_full = False

    def called(self, given: Any, output: Any) -> None:
        """Keep a call, unless there is enough."""
        if self.is_full or torch.compiler.is_compiling():
            return
        outputs = list(tensors_of(output))
        self.later_bytes += sum(each.nbytes for each in outputs) if self.calls else 0
        self.is_full = len(self.calls) + 1 >= MOST_CALLS or self.later_bytes > MOST_LATER_BYTES
        if self.calls and self.later_bytes > MOST_LATER_BYTES:
            return
        numbers = [each for each in tensors_of(given) if not each.dtype.is_floating_point]
        self.calls.append(
            ModelCall(numbers=list(map(_copied, numbers)), outputs=list(map(_copied, outputs)))
        )


@contextmanager
def _observed(model: torch.nn.Module) -> Iterator[_Observed]:
    seen = _Observed()

    def called(module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        seen.called((args, kwargs), output)

    handles: list[Any] = [model.register_forward_hook(called, with_kwargs=True)]
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.is_leaf:
            hooked: Any = parameter
            handles.append(hooked.register_post_accumulate_grad_hook(_keeper(seen, name)))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _keeper(seen: _Observed, name: str) -> Any:
    """Return a hook that keeps a parameter's gradient, which step() may set to zero later."""

    def keep(parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            seen.gradients[name] = _copied(parameter.grad)

    return keep


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)


def later_calls(results: Sequence[StepResult]) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Yield what the model returned in its later calls, of each result: a name and the tensors.

    Only rows (of the first dimension) whose tokens were the same in all results until then: behind
    another token everything is different.
    """
    same: torch.Tensor | None = None
    for place, calls in enumerate(zip(*(each.calls for each in results), strict=False)):
        rows = next((len(each) for each in calls[0].outputs if each.dim()), 0)
        found = _equal_rows([call.numbers for call in calls], rows)
        if found is None:
            return
        same = found if same is None or len(same) != rows else same & found
        if not bool(same.any()):
            return
        if not place:
            continue
        for number, outputs in enumerate(zip(*(call.outputs for call in calls), strict=False)):
            if all(each.dim() and len(each) == rows for each in outputs):
                name = f"output {number} of the model's call {place + 1}"
                yield name, [each[same] for each in outputs]


def _equal_rows(numbers: Sequence[Sequence[torch.Tensor]], rows: int) -> torch.Tensor | None:
    """Return which rows of all tensors are equal; None where a tensor without rows differs."""
    same = torch.ones(rows, dtype=torch.bool)
    for one, *others in zip(*numbers, strict=False):
        for other in others:
            if one.shape != other.shape:
                return None
            if one.dim() > 1 and len(one) == rows:
                same &= (one == other).flatten(1).all(1)
            elif not torch.equal(one, other):
                return None
    return same
