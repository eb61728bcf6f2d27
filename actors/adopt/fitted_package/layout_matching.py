"""The layouts of calls: whether a call has one, how it differs, and results in their nesting.

A layout is a tuple: ("tensor", dtype, shape, stride, device), ("plain", value), or the kind of a
nesting, its keys and its items.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch

_PLAIN = {"none": lambda word: None, "bool": lambda word: word == "True", "int": int,
          "float": float, "str": str, "dtype": lambda word: getattr(torch, word)}  # fmt: skip
_OTHER = "another layout"


def matches(value, spec, tensors, gradients):
    """Whether a value has the judged layout; collect its tensors.  It runs at every call."""
    kind = spec[0]
    if kind == "tensor":
        if (
            not isinstance(value, torch.Tensor)
            or value.shape != spec[2]
            or value.dtype is not spec[1]
            or value.device.type != spec[4]
        ):
            return False
        tensors.append(value)
        if torch.compiler.is_compiling():
            return True
        if not value.is_contiguous() if spec[3] is None else value.stride() != spec[3]:
            return False
        return gradients or not value.requires_grad or not torch.is_grad_enabled()
    if kind == "plain":
        return type(value) is type(spec[1]) and value == spec[1]
    if kind == "dict":
        if not isinstance(value, dict) or tuple(value) != spec[1]:
            return False
        value = tuple(value.values())
    elif not isinstance(value, (list, tuple)) or len(value) != len(spec[2]):
        return False
    return all(matches(item, inner, tensors, gradients) for item, inner in zip(value, spec[2]))


def flat_specs(layout):
    """Return (shape, dtype, stride, flag of the device) of each argument; None for other layouts.

    Of a layout of positional tensors alone: `flat_layout` takes less than a microsecond.
    """
    args, kwargs = layout[2]
    if kwargs[2] or any(spec[0] != "tensor" or spec[4] not in ("cpu", "cuda") for spec in args[2]):
        return None
    return tuple((spec[2], spec[1], spec[3], f"is_{spec[4]}") for spec in args[2])


def flat_layout(args, flat, wanted):
    """Return which of some layouts of `flat_specs` a call has, or -1.

    `wanted`: no argument may need a gradient.
    """
    for number, specs in enumerate(flat):
        if specs is None or len(args) != len(specs):
            continue
        for value, (shape, dtype, stride, flag) in zip(args, specs):
            if not (
                type(value) is torch.Tensor
                and value.dtype is dtype
                and value.shape == shape
                and getattr(value, flag)
                and (value.is_contiguous() if stride is None else value.stride() == stride)
                and not (wanted and value.requires_grad)
            ):
                break
        else:
            return number
    return -1


def misfit(value, spec, tensors, gradients):
    """Return how a value differs from the judged layout, or ""; collect its tensors."""
    kind = spec[0]
    if kind == "tensor":
        if not isinstance(value, torch.Tensor):
            return f"a {type(value).__name__} in place of a tensor"
        if value.shape != spec[2] or value.dtype is not spec[1]:
            if torch.compiler.is_compiling():
                return _OTHER  # a text of symbolic sizes would break the graph
            return f"{value.dtype}{list(value.shape)} in place of {spec[1]}{list(spec[2])}"
        if value.device.type != spec[4]:
            return f"a tensor on {value.device.type}"
        tensors.append(value)
        if torch.compiler.is_compiling():
            return ""
        if not value.is_contiguous() if spec[3] is None else value.stride() != spec[3]:
            return f"strides {value.stride()} in place of {spec[3] or 'contiguous ones'}"
        if value.requires_grad and torch.is_grad_enabled() and not gradients:
            return "gradients are wanted (under torch.no_grad() the kernel runs)"
        return ""
    if kind == "plain":
        same = type(value) is type(spec[1]) and value == spec[1]
        if torch.compiler.is_compiling():
            return "" if same else _OTHER
        return "" if same else f"{value!r} in place of {spec[1]!r}"
    if kind == "dict":
        if not isinstance(value, dict) or tuple(value) != spec[1]:
            return f"other keywords than {list(spec[1])}"
        value = tuple(value.values())
    elif not isinstance(value, (list, tuple)) or len(value) != len(spec[2]):
        return f"not {len(spec[2])} arguments"
    for item, inner in zip(value, spec[2]):
        reason = misfit(item, inner, tensors, gradients)
        if reason:
            return reason
    return ""


def as_tuples(layout):
    """Return a stored layout as tuples: ("tensor", dtype, shape, stride, device), …"""
    kind = layout["type"]
    if kind == "tensor":
        stride = layout.get("stride")
        return ("tensor", getattr(torch, layout["dtype"]), tuple(layout["shape"]),
                stride and tuple(stride), layout.get("device", "cpu"))  # fmt: skip
    if kind == "plain":
        return ("plain", _PLAIN[layout["kind"]](layout.get("word", "")))
    items = tuple(as_tuples(item) for item in layout["items"])
    return (layout["kind"], tuple(layout.get("keys", ())), items)


def in_strides(tensor, spec):
    """Return a result in the strides of the module's own: the next module may know no others."""
    stride = spec[3]
    if stride is None:
        return tensor.contiguous()
    if 0 in stride or all(
        size == 1 or found == wanted
        for size, found, wanted in zip(tensor.shape, tensor.stride(), stride)
    ):
        return tensor
    made = torch.empty_strided(spec[2], stride, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)


def nest(spec, tensors):
    """Return tensors in the nesting of a layout."""
    if spec[0] == "tensor":
        return in_strides(next(tensors), spec)
    if spec[0] == "plain":
        next(tensors)
        return spec[1]
    items = [nest(inner, tensors) for inner in spec[2]]
    if spec[0] == "dict":
        return dict(zip(spec[1], items))
    return items if spec[0] == "list" else tuple(items)
