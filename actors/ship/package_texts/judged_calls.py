"""Calls that the kernels were judged for, made of what the original's own functions draw.

`get_init_inputs()` and `get_inputs()` may draw another case than the judged ones: another dtype,
other shapes or constants.  Their values are then given the layout of the first judged case.
"""

# mypy: ignore-errors
from __future__ import annotations

import itertools

import torch

from .call_arguments import positional_inputs


def constructor_arguments(part):
    """Return the arguments of `Model` and `ModelNew` with which the kernels were judged."""
    given = list(part.get_init_inputs())
    init = part.JUDGED["init"]
    if not part.drop_in._misfit(given, init, "", loose=True):
        return given
    return as_judged(given, init)


def call_inputs(part):
    """Draw the positional arguments of a judged call."""
    drawn = positional_inputs(part.get_inputs(), part.Model.forward)
    case = part.JUDGED
    for each in (case, *case.get("more", ())):
        # Their module is another one, or in another dtype.
        if (each["init"], each.get("dtype")) != (case["init"], case.get("dtype")):
            continue
        given = in_dtype(drawn, case.get("dtype"))
        if not part.drop_in._misfit(given, each["inputs"], "", loose=True):
            return given
    return as_judged(drawn, case["inputs"])


def in_dtype(value, dtype):
    """Return a value with its floating-point tensors in a dtype; None: as they are."""
    if dtype is None:
        return value
    return change(value, lambda t: t.to(dtype) if t.is_floating_point() else t)


def as_judged(value, spec):
    """Return a value in the layout that `spec` describes."""
    kind = spec[0]
    if kind == "plain":
        return spec[1]
    if kind == "tensor":
        return like(value, spec)
    if kind == "dict":
        return {key: as_judged(value[key], inner) for key, inner in zip(spec[1], spec[2])}
    pairs = zip(itertools.cycle(items_of(value)), spec[2])
    return rebuilt(value, [as_judged(item, inner) for item, inner in pairs])


def like(tensor, spec):
    """Return a tensor of another layout, with values of `tensor`."""
    _, dtype, shape, stride, _ = spec
    if tuple(tensor.shape) != shape:
        flat = tensor.reshape(-1)
        tensor = flat[torch.randint(flat.numel(), shape)]
    tensor = tensor.to(dtype)
    if stride is None or tensor.stride() == stride or 0 in stride:
        return tensor
    return torch.empty_strided(shape, stride, dtype=dtype).copy_(tensor)


# --- nested values ---


def change(value, how):
    """Return a value with `how` applied to each of its tensors."""
    if isinstance(value, torch.Tensor):
        return how(value)
    if isinstance(value, dict):
        return {key: change(item, how) for key, item in value.items()}
    items = items_of(value)
    return value if items is None else rebuilt(value, [change(item, how) for item in items])


def tensors_of(value):
    """Return the tensors in a value, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = list(value.values()) if isinstance(value, dict) else items_of(value)
    return [tensor for item in items or () for tensor in tensors_of(item)]


def items_of(value):
    """Return what a list, a tuple or a dataclass holds; None for other values."""
    if isinstance(value, (list, tuple)):
        return list(value)
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is None or isinstance(value, type):
        return None
    return [getattr(value, field) for field in fields]


def rebuilt(value, items):
    """Return a list, tuple or dataclass of the same class that holds `items`."""
    if hasattr(value, "_fields"):
        return type(value)(*items)
    if isinstance(value, (list, tuple)):
        return type(value)(items)
    made = object.__new__(type(value))  # a constructor may take other arguments than the fields
    for field, item in zip(value.__dataclass_fields__, items):
        object.__setattr__(made, field, item)
    return made
