"""Copies of values made of tensors: of their own, wider, on a device, as bytes.  Imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from actors.evaluator.children import cuda_vmm, tensors
from actors.evaluator.ipc import shared_memory
from actors.evaluator.ipc.layout_checks import total_bytes
from protocol.values import DeviceKind

T = TypeVar("T")


def has_same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits (NaN equals itself here)."""
    raw = [
        tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
        for tensor in (left, right)
    ]
    return torch.equal(*raw)


def clone(value: T) -> T:
    """Return `value` with tensors of its own."""
    return _map_tensors(value, lambda tensor: tensor.detach().clone())  # type: ignore[return-value]


def as_double(value: object) -> list[object]:
    """Return inputs with float64 in place of every floating type."""

    def widen(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_complex():
            return tensor.to(torch.complex128)
        return tensor.double() if tensor.is_floating_point() else tensor.clone()

    return _map_tensors(value, widen)  # type: ignore[return-value]  # a list in, a list out


def to_device(value: list[object], device: DeviceKind) -> list[object]:
    """Return `value` with its tensors on `device`."""
    return _map_tensors(value, lambda tensor: tensor.to(device))  # type: ignore[return-value]


def in_memory_order(value: T) -> T:
    """Return `value` with dense tensors seen in the order in which their elements lie."""

    def lie(tensor: torch.Tensor) -> torch.Tensor:
        order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
        seen = tensor.permute(order)
        return seen if seen.is_contiguous() else tensor

    return _map_tensors(value, lie)  # type: ignore[return-value]  # the same nest


def _map_tensors(value: object, change: Callable[[torch.Tensor], torch.Tensor]) -> object:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _map_tensors(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_map_tensors(item, change) for item in value]
    return (
        tuple(_map_tensors(item, change) for item in value) if isinstance(value, tuple) else value
    )


def to_buffer(value: object, make: Callable[[int], int]) -> int:
    """Return a region with the bytes of `value`, in memory that `make` gives, to be read only."""
    made = make(total_bytes(tensors.layout_of(value)))
    tensors.write(value, made)
    if not cuda_vmm.is_device_memory(made):
        shared_memory.make_read_only(made)
    return made
