"""Turns tensors into typed bytes and back.  Used in children only: this file imports torch.

Nothing is pickled.  The bytes are those of the tensor on the CPU, in logical order; a layout gives
their meaning.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import torch

from actors.evaluator.children.tensors import cuda_vmm, records
from actors.evaluator.ipc.layout_checks import (
    ITEM_BYTES,
    Layout,
    Leaf,
    Nest,
    Other,
    Plain,
    offsets,
    tensor_leaves,
    total_bytes,
)

MAX_DEPTH = 16
MAX_PLAIN_CHARS = 4096
LARGE_BYTES = 1 << 28  # of a value that is used where it lies, since its copy takes memory
PLAIN_TENSOR_TYPES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)

MemoryCopy: TypeAlias = Callable[[int, list[ctypes.Array[ctypes.c_char]], int], int]


class UntransferableError(ValueError):
    """A value that can't cross to another process."""


def layout_of(value: object, depth: int = 0) -> Layout:
    """Return the layout of any value; a part that can't cross becomes `Other`."""
    if type(value) in PLAIN_TENSOR_TYPES:
        return _leaf_of(value)  # type: ignore[arg-type]  # all three are tensors
    if depth < MAX_DEPTH:
        if type(value) is dict and all(type(key) is str for key in value):
            items = tuple(layout_of(item, depth + 1) for item in value.values())
            return Nest(kind="dict", keys=tuple(value), items=items)
        if type(value) in (list, tuple, torch.Size):
            items = tuple(layout_of(item, depth + 1) for item in value)  # type: ignore[attr-defined]
            return Nest(kind="list" if type(value) is list else "tuple", items=items)
        kind = records.record_kind(value)
        if kind is not None:
            items = tuple(layout_of(item, depth + 1) for item in records.field_values(value))
            name, keys = records.type_name_of(value), records.field_names(value)
            return Nest(kind=kind, keys=keys, items=items, type_name=name)
        if isinstance(value, tuple):  # what torch's functions return: `torch.return_types.max`
            return Nest(kind="tuple", items=tuple(layout_of(item, depth + 1) for item in value))
    return _plain_of(value)


def _leaf_of(tensor: torch.Tensor) -> Layout:
    if tensor.is_nested:
        return Other(type_name="nested tensor")
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in ITEM_BYTES or tensor.layout != torch.strided:
        return Other(type_name=f"{tensor.layout} tensor of {tensor.dtype}")
    stride = None
    if not tensor.is_contiguous() and is_dense(tensor):
        stride = tuple(tensor.stride())  # dense, so that it can be rebuilt
    return Leaf(dtype=dtype, shape=tuple(tensor.shape), stride=stride, device=tensor.device.type)


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements fill their memory, in whatever order."""
    return tensor.is_contiguous() or torch.empty_like(tensor).stride() == tensor.stride()


def _plain_of(value: object) -> Layout:
    if value is None:
        return Plain(kind="none")
    if type(value) is bool:
        return Plain(kind="bool", word=str(value))
    if type(value) is int and abs(value) < 1 << 63:
        return Plain(kind="int", word=str(value))
    if type(value) is float:
        return Plain(kind="float", word=repr(value))
    if type(value) is str and len(value) <= MAX_PLAIN_CHARS:
        return Plain(kind="str", word=value)
    if type(value) is torch.dtype:
        return Plain(kind="dtype", word=str(value).removeprefix("torch."))
    return Other(type_name=type(value).__name__[:100])


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors of `value`, in the order of its layout's leaves."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    items: Iterable[object] = ()
    if type(value) in (list, tuple):
        items = value  # type: ignore[assignment]  # a sequence
    elif records.record_kind(value) is not None:
        items = records.field_values(value)
    elif isinstance(value, dict):
        items = value.values()
    elif isinstance(value, list | tuple):
        items = value
    for item in items:
        yield from tensors_in(item)


def write(value: object, region: int, limit: int | None = None) -> None:
    """Write the bytes of `value`'s tensors to `region`, a descriptor.

    Raise `UntransferableError` when they do not fit into `limit` bytes.
    """
    layout = layout_of(value)
    places = offsets(layout)
    if limit is not None and places[-1] > limit:
        raise UntransferableError(f"{places[-1]} bytes, expected at most {limit}")
    if not places[-1]:
        return
    parts = [each for each in zip(tensors_in(value), places, strict=False) if each[0].numel()]
    if not cuda_vmm.is_device_memory(region) and all(_on_host(tensor) for tensor, _place in parts):
        for tensor, place in parts:
            _transfer(os.pwritev, region, logical_bytes(tensor), place)
        return
    with open_buffer(region, places[-1] if limit is None else limit, writing=True) as buffer:
        for tensor, place in parts:
            raw = logical_bytes(tensor)
            buffer[place : place + raw.numel()].copy_(raw)


def logical_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bytes in logical order, where that is possible without a copy."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8)


def _on_host(tensor: torch.Tensor) -> bool:
    """Whether the operating system can read and write a tensor's bytes, if it is contiguous."""
    return type(tensor) in PLAIN_TENSOR_TYPES and tensor.device.type == "cpu"


def _transfer(move: MemoryCopy, region: int, tensor: torch.Tensor, place: int) -> None:
    """Move all bytes of a tensor on the host to or from a region, without mapping the region."""
    address, left = tensor.data_ptr(), tensor.nbytes
    while left:
        done = move(region, [(ctypes.c_char * left).from_address(address)], place)
        if not done:
            raise UntransferableError("a region ends too early")
        address, place, left = address + done, place + done, left - done


@contextmanager
def open_buffer(region: int, size: int, *, writing: bool = False) -> Iterator[torch.Tensor]:
    """Give a region's bytes as a tensor, on the host or on the card."""
    if not cuda_vmm.is_device_memory(region):
        # Private for reading: a sealed file can't be mapped as shared.
        flags = mmap.MAP_SHARED if writing else mmap.MAP_PRIVATE
        with mmap.mmap(region, size, flags=flags) as buffer:
            yield torch.frombuffer(buffer, dtype=torch.uint8)
        return
    mapping = cuda_vmm.Mapping(region, size)
    try:
        yield mapping.bytes
    finally:
        mapping.close()


def read(layout: Layout, region: int, device: str) -> object:
    """Return a fresh value of `layout` on `device`, filled from the bytes of `region`."""
    size = total_bytes(layout)
    if not size:
        return value_of(layout, torch.empty(0, dtype=torch.uint8), device)
    with open_buffer(region, size) as buffer:
        return value_of(layout, buffer, device)


@contextmanager
def open_value(layout: Layout, region: int, device: str) -> Iterator[object]:
    """Give a value of `layout` with the bytes of `region`: a large one on a card in its place."""
    size = total_bytes(layout)
    if size <= LARGE_BYTES or not cuda_vmm.is_device_memory(region):
        yield read(layout, region, device)
        return
    with open_buffer(region, size) as buffer:
        places = iter(offsets(layout))

        def tensor(leaf: Leaf) -> torch.Tensor:
            place = next(places)
            return _leaf_view(leaf, buffer, place) if leaf.nbytes else empty_tensor(leaf, device)

        yield assemble(layout, tensor)


def fill(values: Sequence[object], layouts: Sequence[Layout], region: int) -> None:
    """Copy the bytes of `region`, one value after the other, into existing tensors."""
    parts = list(_places(values, layouts))
    if not cuda_vmm.is_device_memory(region) and all(
        _on_host(tensor) and tensor.is_contiguous() for tensor, _leaf, _place in parts
    ):
        for tensor, leaf, place in parts:
            if tensor.nbytes != leaf.nbytes:
                raise UntransferableError("inputs are of another size than before")
            _transfer(os.preadv, region, tensor, place)
        return
    with torch.no_grad(), open_buffer(region, sum(map(total_bytes, layouts))) as buffer:
        for tensor, leaf, place in parts:
            tensor.copy_(_leaf_view(leaf, buffer, place))


def _places(
    values: Sequence[object], layouts: Sequence[Layout]
) -> Iterator[tuple[torch.Tensor, Leaf, int]]:
    """Yield each tensor that has bytes, its leaf, and the offset of its bytes."""
    begin, known = 0, None
    found: list[Leaf] = []
    places = [0]
    for value, layout in zip(values, layouts, strict=True):
        if layout != known:  # mostly equal, and this is on the clock: computed once
            known, found, places = layout, list(tensor_leaves(layout)), offsets(layout)
        for tensor, leaf, place in zip(tensors_in(value), found, places, strict=False):
            if leaf.nbytes:
                # `.data` skips autograd's version counter: a cache that trusts it is wrong, too.
                yield tensor.data, leaf, begin + place
        begin += places[-1]


def _leaf_view(leaf: Leaf, buffer: torch.Tensor, place: int) -> torch.Tensor:
    dtype = getattr(torch, leaf.dtype)
    return buffer[place : place + leaf.nbytes].view(dtype).reshape(leaf.shape)


def in_logical_order(raw: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Return the bytes of a value in logical order, from bytes in the order of its strides."""
    if all(leaf.stride is None for leaf in tensor_leaves(layout)):
        return raw
    ordered = raw.clone()
    for leaf, place in zip(tensor_leaves(layout), offsets(layout), strict=False):
        if leaf.stride is not None:
            flat = raw[place : place + leaf.nbytes].view(getattr(torch, leaf.dtype))
            logical = flat.as_strided(leaf.shape, leaf.stride).contiguous().reshape(-1)
            ordered[place : place + leaf.nbytes] = logical.view(torch.uint8)
    return ordered


def value_of(layout: Layout, buffer: torch.Tensor, device: str) -> object:
    """Return a fresh value of `layout` from the bytes at the beginning of `buffer`."""
    places = iter(offsets(layout))
    return assemble(layout, lambda leaf: _tensor(leaf, buffer, next(places), device))


def assemble(layout: Layout, tensor: Callable[[Leaf], torch.Tensor]) -> object:
    """Return a value of `layout`; `tensor` makes each of its tensors, one after the other."""
    if isinstance(layout, Leaf):
        return tensor(layout)
    if isinstance(layout, Nest):
        items = [assemble(item, tensor) for item in layout.items]
        if layout.kind == "dict":
            return dict(zip(layout.keys, items, strict=True))
        if layout.kind in ("dataclass", "namedtuple"):
            return records.from_layout(layout, items)
        return items if layout.kind == "list" else tuple(items)
    if isinstance(layout, Other):
        raise UntransferableError(f"a {layout.type_name} can't be handed to another process")
    return _plain(layout)


def empty_tensor(leaf: Leaf, device: torch.device | str) -> torch.Tensor:
    """Return a tensor without contents."""
    dtype = getattr(torch, leaf.dtype)
    if leaf.stride is None:
        return torch.empty(leaf.shape, dtype=dtype, device=device)
    return torch.empty_strided(leaf.shape, leaf.stride, dtype=dtype, device=device)


def strided_view(leaf: Leaf, raw: torch.Tensor) -> torch.Tensor:
    """Return the tensor whose bytes, in the order of its strides, are `raw`."""
    flat = raw.view(getattr(torch, leaf.dtype))
    if leaf.stride is None:
        return flat.reshape(leaf.shape)
    return flat.as_strided(leaf.shape, leaf.stride)


def flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bytes: dense ones in the order of their strides, others as they read."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    order = sorted(range(plain.dim()), key=plain.stride, reverse=True)
    turned = plain.permute(order)
    dense = turned if turned.is_contiguous() else plain.contiguous()
    return dense.reshape(-1).view(torch.uint8)


def _tensor(leaf: Leaf, buffer: torch.Tensor, place: int, device: str) -> torch.Tensor:
    if not leaf.nbytes:
        return torch.empty(leaf.shape, dtype=getattr(torch, leaf.dtype), device=device)
    return empty_tensor(leaf, device).copy_(_leaf_view(leaf, buffer, place))


def _plain(plain: Plain) -> object:
    match plain.kind:
        case "none":
            return None
        case "bool":
            return plain.word == "True"
        case "int":
            return int(plain.word)
        case "float":
            return float(plain.word)
        case "dtype":
            return getattr(torch, plain.word)
        case _:
            return plain.word
