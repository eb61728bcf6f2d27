"""What a call changes besides returning its result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from actors.adopt.model.call_layouts import tensors_of
from actors.adopt.model.model_state import version_of


class ChangedTensors:
    """Tells which of some tensors are changed in place."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._tensors = list(tensors)
        self._versions = [version_of(tensor) for tensor in self._tensors]
        # Tensors of inference mode have no version.
        self._copies = [
            tensor.clone() if tensor.is_inference() else None for tensor in self._tensors
        ]

    def found(self) -> list[torch.Tensor]:
        """Return the tensors that have changed."""
        return [
            tensor
            for tensor, version, copy in zip(
                self._tensors, self._versions, self._copies, strict=True
            )
            if version_of(tensor) != version or (copy is not None and not torch.equal(tensor, copy))
        ]


class CallEffects:
    """What a call of a module changes; made before the call."""

    def __init__(
        self, module: torch.nn.Module, given: Any, parts: Iterable[torch.nn.Module] | None = None
    ) -> None:
        """`parts`: the modules whose own state counts; without, all of `module`."""
        self._parts = list(module.modules() if parts is None else parts)
        self._inputs = list(tensors_of(given))
        self._changed = ChangedTensors(self._inputs)
        self._given, self._items = given, _items(given)
        self._random = random_state()
        self._attributes = self._state()

    def found(self) -> str:
        """Return the first effect as a clause; "" when there is none."""
        if self._changed.found():
            return "it changes its input in place"
        if _items(self._given) != self._items:
            return "it changes a list or a dict that it is given"
        if not torch.equal(self._random, random_state()):
            return "it draws random numbers"
        if self._state() != self._attributes:
            return "it changes its own buffers or attributes"
        return ""

    def shared(self, output: Any) -> str:
        """Return that a result has the memory of an input, as a clause; "" when it has not."""
        held = {tensor.untyped_storage().data_ptr() for tensor in self._inputs if tensor.numel()}
        if any(
            tensor.numel() and tensor.untyped_storage().data_ptr() in held
            for tensor in tensors_of(output)
        ):
            return "its result shares memory with its input"
        return ""

    def _state(self) -> list[object]:
        found: list[object] = []
        for part in self._parts:
            for value in (*part._parameters.values(), *part._buffers.values()):
                found.append((id(value), -1 if value is None else version_of(value)))
            for key, value in vars(part).items():
                if not key.startswith("_"):
                    size = len(value) if isinstance(value, list | dict | set) else 0
                    found.append((key, id(value), size))
        return found


def _items(value: Any) -> list[int]:
    """Return the identities of all items in nested lists, tuples and dicts."""
    held = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list | tuple):
        return [id(value)]
    return [len(value), *(number for item in held for number in _items(item))]


def random_state() -> torch.Tensor:
    """Return the state of the generators that a module draws from."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states.append(torch.cuda.get_rng_state())
    return torch.cat(states)
