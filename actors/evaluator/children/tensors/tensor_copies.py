"""Copies nested tensors: cloned, in float64, on a device, as bytes.  Imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from actors.evaluator.children.tensors import cuda_vmm, records, tensor_bytes
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
    """Return `value` with copies of its tensors."""
    return map_tensors(value, lambda tensor: tensor.detach().clone())  # type: ignore[return-value]


def as_double(value: object) -> list[object]:
    """Return inputs with float64 in place of every floating type."""

    def widen(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_complex():
            return tensor.to(torch.complex128)
        return tensor.double() if tensor.is_floating_point() else tensor.clone()

    return map_tensors(value, widen)  # type: ignore[return-value]  # a list in, a list out


def to_device(value: list[object], device: DeviceKind) -> list[object]:
    """Return `value` with its tensors on `device`."""
    return map_tensors(value, lambda tensor: tensor.to(device))  # type: ignore[return-value]


def map_tensors(value: object, change: Callable[[torch.Tensor], torch.Tensor]) -> object:
    """Return `value` with `change` applied to each of its tensors, in their order."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if records.record_kind(value) is not None:
        items = [map_tensors(each, change) for each in records.field_values(value)]
        return records.like(value, items)
    if isinstance(value, dict):
        return {key: map_tensors(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [map_tensors(item, change) for item in value]
    return tuple(map_tensors(item, change) for item in value) if isinstance(value, tuple) else value


def to_buffer(value: object, allocate: Callable[[int], int]) -> int:
    """Return a descriptor of memory with the bytes of `value`; host memory is read-only."""
    buffer = allocate(total_bytes(tensor_bytes.layout_of(value)))
    tensor_bytes.write(value, buffer)
    if not cuda_vmm.is_device_memory(buffer):
        shared_memory.make_read_only(buffer)
    return buffer
