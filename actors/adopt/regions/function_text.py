"""One call of a function of torch, as Python code made it, as a line of code.

A text is a sequence of words: pieces of code, numbers of values, and tensors of the module.
"""

from __future__ import annotations

import keyword
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
import torch
from torch.overrides import resolve_name

from actors.adopt.look.module_profile import is_library_operation
from actors.adopt.tasks.operation_text import UntranslatableError


class StateWord(msgspec.Struct, frozen=True):
    """A parameter or buffer of the module."""

    path: str


class DeviceWord(msgspec.Struct, frozen=True):
    """The device that the call's tensors are on."""


Word = str | int | StateWord | DeviceWord
Words = tuple[Word, ...]

INFIX = {
    **{"add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@", "pow": "**"},
    **{"gt": ">", "lt": "<", "ge": ">=", "le": "<=", "eq": "==", "ne": "!="},
    **{"__and__": "&", "__or__": "|", "__pow__": "**", "__floordiv__": "//", "__mod__": "%"},
    **{"__truediv__": "/", "__matmul__": "@"},
}
REFLECTED = {
    **{"__rsub__": "-", "__rdiv__": "/", "__rtruediv__": "/", "__rpow__": "**"},
    **{"__rfloordiv__": "//", "__rmatmul__": "@"},
}
# What Python may read of a tensor: equal for all calls of one layout.
METADATA = frozenset(
    [
        *("shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_leaf", "grad_fn"),
        *("is_cuda", "is_cpu", "is_meta", "is_mps", "is_xla", "is_sparse", "is_nested", "nbytes"),
        *("is_quantized", "is_mkldnn", "itemsize", "size", "stride", "dim", "numel", "nelement"),
        *("ndimension", "element_size", "storage_offset", "is_contiguous", "is_floating_point"),
        *("is_complex", "is_signed", "is_inference", "get_device", "__len__", "result_type"),
        *("broadcast_shapes", "is_conj", "is_neg", "has_names", "type", "is_xpu", "is_same_size"),
    ]
)
LIBRARIES = frozenset(
    ["multi_head_attention_forward", "rmatmul", "bilinear", "cdist", "matrix_exp"]
)


def function_name(function: Any) -> str:
    """Return a function's own name: "add", "__getitem__", "shape" for a property."""
    name: str = resolve_name(function) or getattr(function, "__name__", "")
    words = name.split(".")
    return words[-2] if words[-1] in ("__get__", "__set__") and len(words) > 1 else words[-1]


def is_library_function(function: Any) -> bool:
    """Whether a function's time is a library's, or its package is not torch."""
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        space, _, name = str(function).removeprefix("torch.ops.").partition(".")
        name = name.partition(".")[0]
        return space != "aten" or is_library_operation(name)
    name = function_name(function).strip("_")
    return is_library_operation(name) or name in LIBRARIES


def call_words(
    function: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    word_of: Callable[[Any], Word | None],
) -> Words:
    """Return the text of one call; raise UntranslatableError for what can't be written.

    `word_of`: the word of a tensor or of the device; None for anything else.
    """

    def words(value: Any) -> Words:
        return value_words(value, word_of)

    name, kind = function_name(function), _kind_of(function)
    if kind == "property":
        return (*words(args[0]), f".{name}")
    if kind == "method":
        if name == "__getitem__":
            return (*words(args[0]), "[", *_index_words(args[1], words), "]")
        if name == "__setitem__":
            index = _index_words(args[1], words)
            return (*words(args[0]), "[", *index, "] = ", *words(args[2]))
        if len(args) == 2 and not kwargs and name in INFIX:
            return (*words(args[0]), f" {INFIX[name]} ", *words(args[1]))
        if len(args) == 2 and not kwargs and name in REFLECTED:
            return (*words(args[1]), f" {REFLECTED[name]} ", *words(args[0]))
        return (*words(args[0]), f".{name}", *argument_words(args[1:], kwargs, words))
    return (kind, *argument_words(args, kwargs, words))


def argument_words(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], words: Callable[[Any], Words]
) -> Words:
    """Return the arguments of a call in brackets."""
    pieces = [words(each) for each in args]
    # F.softmax(_stacklevel=3) says where a warning points to.
    pieces += [(f"{key}=", *words(each)) for key, each in kwargs.items() if not key.startswith("_")]
    return ("(", *_joined(pieces), ")")


def _kind_of(function: Any) -> str:
    """Return "property", "method", or the text of a function: "F.gelu"."""
    resolved = resolve_name(function) or ""
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return f"torch.ops.{str(function).removeprefix('torch.ops.')}"
    if resolved.startswith("torch.Tensor."):
        name = resolved.removeprefix("torch.Tensor.")
        if name.endswith(".__get__"):
            return "property"
        if getattr(torch.Tensor, name, None) == function:
            return "method"
    own = resolved.rpartition(".")[2]
    texts = (f"torch.{own}", f"torch.nn.functional.{own}", resolved)
    for text in texts if own.isidentifier() else ():
        if _named(text) is function:
            return text.replace("torch.nn.functional.", "F.")
    raise UntranslatableError(f"it calls {resolved or function!r}, which has no public name")


def _named(text: str) -> Any:
    found: Any = torch
    for name in text.split(".")[1:]:
        found = getattr(found, name, None)
    return found


def _index_words(index: Any, words: Callable[[Any], Words]) -> Words:
    """Return what stands between the brackets of `x[...]`."""
    if isinstance(index, tuple) and index:
        pieces = [_index_words(each, words) if not isinstance(each, tuple) else words(each)
                  for each in index]  # fmt: skip
        return (*_joined(pieces), ",") if len(index) == 1 else tuple(_joined(pieces))
    if isinstance(index, slice):
        ends = [() if each is None else words(each) for each in (index.start, index.stop)]
        step: Words = () if index.step is None else (":", *words(index.step))
        return (*ends[0], ":", *ends[1], *step)
    return words(index)


def value_words(value: Any, word_of: Callable[[Any], Word | None]) -> Words:
    """Return an argument as words; raise UntranslatableError for what can't be written."""
    found = word_of(value)
    if found is not None:
        return (found,)
    if isinstance(value, list | tuple) and type(value) in (list, tuple, torch.Size):
        pieces = [value_words(each, word_of) for each in value]
        if type(value) is list:
            return ("[", *_joined(pieces), "]")
        return ("(", *_joined(pieces), ",)" if len(pieces) == 1 else ")")
    if type(value) is dict and all(isinstance(key, str) for key in value):
        pieces = [(f"{key!r}: ", *value_words(each, word_of)) for key, each in value.items()]
        return ("{", *_joined(pieces), "}")
    return (_constant(value),)


def object_words(
    value: Any, module: torch.nn.Module, word_of: Callable[[Any], Word | None]
) -> Words:
    """Return a result that may hold dataclasses, such as transformers' outputs, as words.

    A class has to be known by its name in the file that has the module's class.
    """
    if isinstance(value, torch.Tensor) or not (
        is_dataclass(value) or type(value) in (list, tuple, dict)
    ):
        return value_words(value, word_of)
    if is_dataclass(value):
        kind = type(value)
        if getattr(sys.modules.get(type(module).__module__), kind.__name__, None) is not kind:
            raise UntranslatableError(f"a {kind.__name__} can't be made where its class is")
        pieces: list[Words] = [
            (f"{each.name}=", *object_words(getattr(value, each.name), module, word_of))
            for each in fields(value)
            if each.init
        ]
        start = f"sys.modules[type(self).__module__].{kind.__name__}("
        return (start, *_joined(pieces), ")")
    if isinstance(value, dict):
        pieces = [
            (f"{_constant(key)}: ", *object_words(each, module, word_of))
            for key, each in value.items()
        ]
        return ("{", *_joined(pieces), "}")
    pieces = [object_words(each, module, word_of) for each in value]
    if isinstance(value, list):
        return ("[", *_joined(pieces), "]")
    return ("(", *_joined(pieces), ",)" if len(pieces) == 1 else ")")


def _constant(value: Any) -> str:
    """Return a value that is not a tensor as code."""
    if isinstance(value, float) and type(value) is float:
        return repr(value) if value - value == 0 else f'float("{value}")'
    if value is None or value is Ellipsis or type(value) in (bool, int, str):
        return "..." if value is Ellipsis else repr(value)
    if isinstance(value, slice):
        return f"slice({value.start!r}, {value.stop!r}, {value.step!r})"
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return str(value)
    if isinstance(value, torch.device):
        return f'torch.device("{value}")'
    raise UntranslatableError(f"an argument of an operation is a {type(value).__name__}")


def _joined(pieces: list[Words]) -> list[Word]:
    found: list[Word] = []
    for number, piece in enumerate(pieces):
        found += [", ", *piece] if number else piece
    return found


def path_text(path: str) -> str:
    """Return the code of a submodule or tensor of `self`: `self.norm`, `getattr(self.h, "0")`."""
    text = "self"
    for name in filter(None, path.split(".")):
        plain = name.isidentifier() and not keyword.iskeyword(name)
        text = f"{text}.{name}" if plain else f'getattr({text}, "{name}")'
    return text
