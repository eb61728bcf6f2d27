"""What the kernels were judged on, and the comparison of a value with it."""

# mypy: ignore-errors
from __future__ import annotations

_JUDGED: dict = {}

# --- copied from here on ---

import contextlib as _contextlib
import functools as _functools
import inspect as _inspect
import itertools as _itertools
import linecache as _linecache
import os as _os
import sys as _sys
import threading as _threading
import types as _types
import warnings as _warnings
import weakref as _weakref

import torch as _torch

_RECORDS = ("dataclass", "namedtuple")
_ALIGNMENT = 64  # bytes: where the judged tensors began, so that vector loads may rely on it
_STOP = "_StopRecomputationError"  # with which torch.utils.checkpoint ends a forward early
_MOST_BINDINGS = 8  # after so many replacements of its parameters a module stays plain
_OWN_ATTRIBUTES = frozenset(vars(_torch.nn.Module())) | {"_kernel_guard", "_kernel_arguments"}
_GRADIENTS = "gradients are wanted (under torch.no_grad() the kernels run)"
_LIMITS = _JUDGED["limits"]  # uses in which the kernels were not right: the plain forward runs
_DEVICE = _JUDGED["device"]
_CASES = (_JUDGED, *_JUDGED.get("more", ()))  # each with its layouts
_INPUTS = tuple(case["inputs"][2] for case in _CASES)  # of each case
_ALL_TENSORS = all(spec[0] == "tensor" for specs in _INPUTS for spec in specs)
_ALL_CONTIGUOUS = _ALL_TENSORS and all(spec[3] is None for specs in _INPUTS for spec in specs)
# Judged with its backward pass: the numbers of the inputs' tensors that may require a gradient.
_IS_DIFFERENTIATED = "gradients" in _JUDGED
_GRADIENT_INPUTS = frozenset(_JUDGED.get("gradients", ()))
_handles = _itertools.count()
_modules = _weakref.WeakValueDictionary()  # handle -> module, for the operator under torch.compile
_owner = None  # the one guard whose kernels run, where a second instance was not right
_warned = set()


def _warn_once(reason):
    """Warn that the plain forward runs; the same reason is said once a process."""
    if reason not in _warned:
        _warned.add(reason)
        _warnings.warn(f"ModelNew runs the plain forward: {reason}", RuntimeWarning, stacklevel=4)


def _misfit(value, spec, name, loose=False):
    """Return why `value` is not like the judged one that `spec` describes; "" when it is.

    `loose`: a tensor may lie on any device, in any strides.
    """
    kind = spec[0]
    if kind == "tensor":
        return _tensor_misfit(value, spec, name, loose)
    if kind == "plain":
        if type(value) is not type(spec[1]) or (value != spec[1] and spec[1] == spec[1]):
            return f"{name} is {value!r}, the kernels were made for {spec[1]!r}"
        return ""
    if kind == "dict":
        if type(value) is not dict or tuple(value) != spec[1]:
            return f"{name} is not a dict with the keys {list(spec[1])}"
        value = tuple(value.values())
    elif kind in _RECORDS:
        if _fields_of(value) != spec[1]:
            return f"{name} is not a {kind} with the fields {list(spec[1])}"
        value = [getattr(value, field) for field in spec[1]]
    elif type(value).__name__ != kind or len(value) != len(spec[2]):
        return f"{name} is not a {kind} of {len(spec[2])}"
    for number, (item, inner) in enumerate(zip(value, spec[2])):
        reason = _misfit(item, inner, f"{name}[{number}]", loose)
        if reason:
            return reason
    return ""


def _tensor_misfit(value, spec, name, loose):
    """Return why `value` is not like a judged tensor; "" when it is."""
    _, dtype, shape, stride, device = spec
    if type(value) is not _torch.Tensor and type(value) is not _torch.nn.Parameter:
        return f"{name} is a {type(value).__name__}, the kernels take a Tensor"
    if value.layout is not _torch.strided:
        return f"{name} is {value.layout}, the kernels take a dense tensor"
    if value.shape != shape:
        return f"{name} has {_shown('shape', value.shape)}, the kernels take {list(shape)}"
    if value.dtype is not dtype:
        return f"{name} is {value.dtype}, the kernels take {dtype}"
    if loose:
        return ""
    if value.device.type != device:
        return f"{name} is on {value.device.type}, the kernels take {device}"
    if not value.is_contiguous() if stride is None else value.stride() != stride:
        held = _shown("strides", value.stride())
        return f"{name} has {held}, the kernels take {stride or 'contiguous'}"
    return ""


def _shown(word, sizes):
    """Return sizes as text; a compiler gets none, for a symbolic size makes no constant text."""
    return f"another {word}" if _torch.compiler.is_compiling() else f"{word} {list(sizes)}"


def _fields_of(value):
    """Return the names of the fields of a dataclass or a named tuple; () for other values."""
    kind = type(value)  # torch.fx's proxies have every attribute
    return tuple(getattr(kind, "_fields", None) or getattr(kind, "__dataclass_fields__", ()))


def _tensors_of(value):
    """Return the tensors in a value, in order."""
    if isinstance(value, _torch.Tensor):
        return [value]
    if getattr(type(value), "__dataclass_fields__", None):
        value = [getattr(value, field) for field in _fields_of(value)]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors_of(item)]
    return []


def _nest(spec, tensors):
    """Return tensors in the nesting that `spec` describes."""
    if spec[0] == "tensor":
        return next(tensors)
    if spec[0] == "plain":
        return spec[1]
    items = [_nest(inner, tensors) for inner in spec[2]]
    if spec[0] == "dict":
        return dict(zip(spec[1], items))
    return items if spec[0] == "list" else tuple(items)


def _has_record(spec):
    """Whether a value has a dataclass or a named tuple in it, which no operator can return."""
    return spec[0] in _RECORDS or (len(spec) == 3 and any(map(_has_record, spec[2])))


def _leaf_specs(spec):
    """Return the specs of the tensors in a value, in order."""
    if spec[0] == "tensor":
        return [spec]
    return [] if spec[0] == "plain" else [leaf for inner in spec[2] for leaf in _leaf_specs(inner)]
