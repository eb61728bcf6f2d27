"""The values of a model's tensors, kept so that a step which changes them can be repeated.

A training step updates parameters, a batch norm its statistics, and some models their inputs.
Comparisons need every step to begin with the same values.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterator, Sequence

import torch

from actors.adopt.model.call_layouts import tensors_of
from actors.adopt.model.model_file import Batch


def version_of(tensor: torch.Tensor) -> int:
    """Return a number that changes with a tensor's values; a tensor of inference mode has none."""
    return -1 if tensor.is_inference() else tensor._version


class KeptState:
    """The tensors of a model, and those of its batches that steps change; copies only at need."""

    def __init__(self, model: torch.nn.Module, batches: Sequence[Batch] = ()) -> None:
        """Note the tensors' versions; `settle` decides after a first step."""
        self._model = model
        self._versions = list(map(version_of, self._tensors()))
        self._inputs = [(each, version_of(each)) for each in tensors_of(batches)]
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._gradients: list[tuple[torch.nn.Parameter, torch.Tensor | None]] = []

    @property
    def is_needed(self) -> bool:
        """Whether steps change the model."""
        return bool(self._kept or self._gradients)

    def settle(self) -> None:
        """Keep the values as they are now, if they or gradients have changed since construction."""
        changed = list(map(version_of, self._tensors())) != self._versions
        changed |= any(version_of(each) != version for each, version in self._inputs)
        if changed or any(each.grad is not None for each in self._model.parameters()):
            self.keep()

    def keep(self) -> None:
        """Keep the values as they are now."""
        tensors = [*self._tensors(), *self._changed_inputs()]
        self._kept = [(each, _without_repeats(each).clone()) for each in tensors]
        self._gradients = [(each, None) for each in self._model.parameters()]
        self.restore()

    def restore(self) -> None:
        """Give the tensors their kept values; the tensors themselves stay, gradients go."""
        with torch.inference_mode():  # else its tensors can't be written to
            for tensor, values in self._kept:
                _without_repeats(tensor).copy_(values)
        for parameter, gradient in self._gradients:
            parameter.grad = gradient

    def _tensors(self) -> Iterator[torch.Tensor]:
        yield from self._model.parameters()
        yield from self._model.buffers()

    def _changed_inputs(self) -> Iterator[torch.Tensor]:
        """Yield the batches' tensors that steps have changed, or may have changed unnoticed."""
        for each, version in self._inputs:
            if each.is_inference() or version_of(each) != version:
                yield each


def _without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view with each element once: what `expand` repeats can't be written to."""
    tensor = tensor.detach()
    if tensor.layout != torch.strided or tensor.is_nested:
        return tensor
    for dimension, stride in enumerate(tensor.stride()):
        if not stride and tensor.shape[dimension] > 1:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def repeatable(steps: Sequence[Callable[[], object]], state: KeptState) -> Callable[[], None]:
    """Return a function that runs the steps, each from the kept values; also one that raises."""

    def run() -> None:
        for step in steps:
            try:
                step()
            finally:
                state.restore()

    return run


def weights_hash(module: torch.nn.Module) -> str:
    """Return the SHA-256 of a module's parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        dense = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        # Where it lies: `bytes(storage)` takes two microseconds for each byte.
        digest.update((ctypes.c_char * dense.nbytes).from_address(dense.data_ptr()))
    return digest.hexdigest()
