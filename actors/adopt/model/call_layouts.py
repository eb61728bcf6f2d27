"""The layout of a call: its arguments' nesting, shapes, dtypes, strides and plain values.

Two calls with one layout can be taken by one kernel.  `protocol.layouts` has the types.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec
import torch

from protocol.layouts import Layout, Leaf, Nest, Other, Plain

PLAIN_KINDS = {type(None): "none", bool: "bool", int: "int", float: "float", str: "str"}


class CallKind(msgspec.Struct, frozen=True, kw_only=True):
    """What makes two calls of a module equal, except for the tensors' values."""

    layout: Layout  # a tuple: the positional arguments, and a dict of the keywords
    gradients: bool = False  # autograd recorded the call
    autocast_dtype: str = ""  # the dtype that autocast computed in; "" without it
    training: bool = False


def call_kind(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallKind:
    """Return the kind of one call of `module`, at the moment of the call."""
    layout = layout_of((args, kwargs))
    wants_gradients = torch.is_grad_enabled() and (
        any(value.requires_grad for value in tensors_of((args, kwargs)))
        or any(parameter.requires_grad for parameter in module.parameters())
    )
    return CallKind(
        layout=layout,
        gradients=wants_gradients,
        autocast_dtype=_autocast_dtype(layout),
        training=module.training,
    )


def _autocast_dtype(layout: Layout) -> str:
    """Return the dtype of autocast on the device of a call's tensors; "" where it is off."""
    device = next((leaf.device for _, leaf in tensor_layouts(layout)), "cpu")
    if not torch.is_autocast_enabled(device):
        return ""
    return str(torch.get_autocast_dtype(device)).removeprefix("torch.")


def as_called(kind: CallKind) -> AbstractContextManager[object]:
    """Return a context with autocast as it was in calls of a kind."""
    if not kind.autocast_dtype:
        return nullcontext()
    device = next((leaf.device for _, leaf in tensor_layouts(kind.layout)), "cpu")
    return torch.autocast(device, getattr(torch, kind.autocast_dtype))


def layout_of(value: Any) -> Layout:
    """Return the layout of a value; a type that can't be a task's argument is an `Other`."""
    if isinstance(value, torch.Tensor):
        return _tensor_layout(value)
    kind = PLAIN_KINDS.get(type(value))
    if kind is not None:
        return Plain(kind=kind, word="" if value is None else str(value))  # type: ignore[arg-type]
    if isinstance(value, torch.dtype):
        return Plain(kind="dtype", word=str(value).removeprefix("torch."))
    if type(value) in (list, tuple, torch.Size):
        items = tuple(layout_of(item) for item in value)
        return Nest(kind="list" if type(value) is list else "tuple", items=items)
    if type(value) is dict and all(isinstance(key, str) for key in value):
        items = tuple(layout_of(item) for item in value.values())
        return Nest(kind="dict", keys=tuple(value), items=items)
    return Other(type_name=type(value).__name__)


def _tensor_layout(value: torch.Tensor) -> Layout:
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
        return Other(type_name=f"{type(value).__name__} ({value.layout})")
    return Leaf(
        dtype=str(value.dtype).removeprefix("torch."),
        shape=tuple(value.shape),
        stride=None if value.is_contiguous() else tuple(value.stride()),
        device=value.device.type,
    )


def unsupported(layout: Layout) -> str:
    """Return the first type in a layout that a task can't have; "" when there is none."""
    if isinstance(layout, Other):
        return layout.type_name
    if isinstance(layout, Nest):
        return next(filter(None, map(unsupported, layout.items)), "")
    return ""


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in lists, tuples, dicts and dataclasses, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_of(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_of(item)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from tensors_of(getattr(value, name))


def tensor_layouts(layout: Layout, name: str = "") -> Iterator[tuple[str, Leaf]]:
    """Yield the tensors of a layout with their places, such as "0" or "mask"."""
    if isinstance(layout, Leaf):
        yield name, layout
    elif isinstance(layout, Nest):
        keys = layout.keys or tuple(map(str, range(len(layout.items))))
        for key, item in zip(keys, layout.items, strict=True):
            yield from tensor_layouts(item, f"{name}.{key}" if name else key)


def is_same_nesting(one: CallKind, other: CallKind) -> bool:
    """Whether two kinds of calls differ in their tensors' shapes and dtypes alone."""
    modes = [(kind.gradients, kind.autocast_dtype, kind.training) for kind in (one, other)]
    return modes[0] == modes[1] and _skeleton(one.layout) == _skeleton(other.layout)


def _skeleton(layout: Layout) -> object:
    """Return a layout without the shapes, dtypes and strides of its tensors."""
    if isinstance(layout, Leaf):
        return len(layout.shape), layout.device
    if isinstance(layout, Nest):
        return layout.kind, layout.keys, tuple(map(_skeleton, layout.items))
    return layout


def is_same_order(one: Leaf, other: Leaf) -> bool:
    """Whether two dense tensors have their dimensions in the same order in memory."""
    return _order(one) is not None and _order(one) == _order(other)


def _order(leaf: Leaf) -> tuple[int, ...] | None:
    """Return the dimensions from the slowest to the fastest; None for a tensor with gaps."""
    dims = tuple(range(len(leaf.shape)))
    if leaf.stride is None:
        return dims
    stride = leaf.stride
    order = tuple(sorted(dims, key=lambda dim: -stride[dim]))
    expected = 1
    for dim in reversed(order):
        if stride[dim] != expected and leaf.shape[dim] != 1:
            return None
        expected *= leaf.shape[dim]
    return order


def describe_call(kind: CallKind) -> str:
    """Return a call for people: "float32[2, 197, 192]"."""
    leaves = [
        f"{leaf.dtype}[{', '.join(map(str, leaf.shape))}]"
        for _, leaf in tensor_layouts(kind.layout)
    ]
    modes = [name for name in ("gradients", "training") if getattr(kind, name)]
    modes += [f"autocast to {kind.autocast_dtype}"] if kind.autocast_dtype else []
    return ", ".join(leaves) + (f" ({', '.join(modes)})" if modes else "")
