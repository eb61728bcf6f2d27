"""Copies nested tensors: cloned, in float64, on a device, as bytes.  Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from actors.evaluator.children.tensors import cuda_vmm, records, tensor_bytes
from actors.evaluator.ipc import shared_memory
from actors.evaluator.ipc.layout_checks import total_bytes
from protocol.values import DeviceKind

T = TypeVar("T")


BYTES_AT_ONCE = 1 << 28  # of large tensors, so that little memory is needed besides them


def has_same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits (NaN equals itself here)."""
    pieces = zip(_raw_pieces(left), _raw_pieces(right), strict=True)
    return left.nbytes == right.nbytes and all(torch.equal(*pair) for pair in pieces)


def storage_address(tensor: torch.Tensor) -> int:
    """Return where a tensor's storage begins; 0 where it has none: sparse, empty."""
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


def _raw_pieces(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return torch.split(plain.reshape(-1).view(torch.uint8), BYTES_AT_ONCE)


class InputsBefore:
    """What tells which tensors a trusted call has written to: their copies, or sums of large ones.

    Sums are weighted by place.  No candidate has a part in them.
    """

    def __init__(self, value: object) -> None:
        tensors = list(tensor_bytes.tensors_in(value))
        self._sums: list[list[int]] = []
        self._copies: list[torch.Tensor] = []
        if sum(each.nbytes for each in tensors) > BYTES_AT_ONCE:
            self._sums = [_sums(each) for each in tensors]
        else:
            self._copies = [each.detach().clone() for each in tensors]

    def differences(self, value: object) -> list[bool]:
        """Return for each tensor whether it holds something else by now."""
        tensors = list(tensor_bytes.tensors_in(value))
        if self._sums:
            return [_sums(now) != old for now, old in zip(tensors, self._sums, strict=True)]
        pairs = zip(tensors, self._copies, strict=True)
        return [not has_same_bytes(now, old) for now, old in pairs]

    def copies(self) -> list[torch.Tensor]:
        """Return what each tensor held; nothing where they are too large to be copied."""
        return self._copies


def _sums(tensor: torch.Tensor) -> list[int]:
    """Return weighted sums of a tensor's bytes, one for each of its pieces."""
    sums = []
    for raw in _raw_pieces(tensor):
        if raw.storage_offset() % torch.int64.itemsize:  # a part of a larger tensor
            raw = raw.clone()
        rest = raw.numel() % torch.int64.itemsize
        words = raw[: raw.numel() - rest].view(torch.int64)
        weights = 1 + 2 * torch.arange(words.numel(), device=raw.device)
        sums += [int((words * weights).sum()), int(raw[raw.numel() - rest :].sum())]
    return sums


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
