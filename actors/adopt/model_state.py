"""The values of a model's tensors, kept so that a step which changes them can be repeated.

A training step updates parameters, a batch norm its statistics, and some models their inputs.
Comparisons need every step to begin with the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from actors.adopt.call_layouts import tensors_of
from actors.adopt.model_file import Batch


def version_of(tensor: torch.Tensor) -> int:
    """Return a number that changes with a tensor's values; a tensor of inference mode has none."""
    return -1 if tensor.is_inference() else tensor._version


class KeptState:
    """The tensors of a model and its batches; copies exist only where steps change some of them."""

    def __init__(self, model: torch.nn.Module, batches: Sequence[Batch] = ()) -> None:
        """Note the tensors' versions; `settle` decides after a first step."""
        self._model, self._batches = model, batches
        self._versions = list(map(version_of, self._tensors()))
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._gradients: list[tuple[torch.nn.Parameter, torch.Tensor | None]] = []

    @property
    def is_needed(self) -> bool:
        """Whether steps change the model."""
        return bool(self._kept or self._gradients)

    def settle(self) -> None:
        """Keep the values as they are now, if they or gradients have changed since construction."""
        changed = list(map(version_of, self._tensors())) != self._versions
        if changed or any(each.grad is not None for each in self._model.parameters()):
            self.keep()

    def keep(self) -> None:
        """Keep the values as they are now."""
        self._kept = [(each, each.detach().clone()) for each in self._tensors()]
        self._gradients = [(each, None) for each in self._model.parameters()]
        self.restore()

    def restore(self) -> None:
        """Give the tensors their kept values; the tensors themselves stay, gradients go."""
        with torch.no_grad():
            for tensor, values in self._kept:
                tensor.copy_(values)
        for parameter, gradient in self._gradients:
            parameter.grad = gradient

    def _tensors(self) -> Iterator[torch.Tensor]:
        yield from self._model.parameters()
        yield from self._model.buffers()
        yield from tensors_of(self._batches)


def repeatable(steps: Sequence[Callable[[], object]], state: KeptState) -> Callable[[], None]:
    """Return a function that runs the steps, each from the kept values."""

    def run() -> None:
        for step in steps:
            step()
            state.restore()

    return run
