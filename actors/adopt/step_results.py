"""What a step gives: the tensors that it returns, the model's first outputs, and gradients.

A generate loop returns token numbers, which differ from one wrong word on and say little before.
So the outputs of the model's first call in each step are compared, too: their inputs are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import torch

from actors.adopt.call_layouts import tensors_of
from actors.adopt.errors import AdoptError
from actors.adopt.model_file import Batch, ModelFile
from actors.adopt.model_state import KeptState


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """Copies on the host of what one step gave."""

    outputs: list[torch.Tensor]
    first_call: list[torch.Tensor] = msgspec.field(default_factory=list)
    gradients: dict[str, torch.Tensor] = msgspec.field(default_factory=dict)  # by parameter

    def places(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield every tensor with a name for people."""
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
        first = seen.first_call if file.has_step else []
        state.restore()
        if not (outputs or first or seen.gradients):
            raise AdoptError(
                f"{file.path}: step() with batch {number} returns no tensor, and the model neither:"
                " return the outputs, for a wrong result would not be seen"
            )
        result = StepResult(outputs=outputs, first_call=first, gradients=seen.gradients)
        found.append(result)
    return found


def has_backward(file: ModelFile, model: torch.nn.Module, batch: Batch) -> bool:
    """Run one step; return whether gradients of parameters were accumulated in it."""
    with _observed(model) as seen:
        file.step(model, batch)
    return bool(seen.gradients)


class _Observed:
    """The first outputs of a model, and the gradients that were accumulated."""

    def __init__(self) -> None:
        self.first_call: list[torch.Tensor] = []
        self.gradients: dict[str, torch.Tensor] = {}
        self.was_called = False


@contextmanager
def _observed(model: torch.nn.Module) -> Iterator[_Observed]:
    seen = _Observed()

    def called(module: torch.nn.Module, args: Any, output: Any) -> None:
        if not seen.was_called:
            seen.was_called = True
            seen.first_call = [_copied(tensor) for tensor in tensors_of(output)]

    handles: list[Any] = [model.register_forward_hook(called)]
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
