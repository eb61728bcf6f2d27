"""The tensors of a call and of a module: their names, their memory, their places in results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from actors.adopt.model.call_layouts import tensors_of
from actors.adopt.regions.function_text import path_text
from actors.adopt.tasks.operation_text import UntranslatableError

Given = tuple[tuple[Any, ...], dict[str, Any]]


def input_names(forward: Callable[..., Any], given: Given) -> list[str]:
    """Return a name for each tensor of a call: those of the forward's parameters."""
    code = getattr(forward, "__code__", None)
    known = code.co_varnames[: code.co_argcount] if code is not None else ()
    if hasattr(forward, "__self__"):
        known = known[1:]
    names = []
    for place, value in enumerate(given[0]):
        name = known[place] if place < len(known) else "given"
        names += [name] * len(list(tensors_of(value)))
    for name, value in given[1].items():
        names += [name] * len(list(tensors_of(value)))
    return names


def storage_of(tensor: torch.Tensor) -> int:
    """Return a number that tensors have in common which share memory."""
    if tensor.layout != torch.strided:
        raise UntranslatableError(f"it uses a tensor of the layout {tensor.layout}")
    try:
        return int(tensor.untyped_storage()._cdata)
    except RuntimeError as error:  # such as the tensors inside of torch.vmap
        raise UntranslatableError("it uses a tensor without memory of its own") from error


def state_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the parameters and buffers, of several names the first."""
    seen: set[int] = set()
    tensors = (module.named_parameters, module.named_buffers)
    for named in tensors:
        for path, tensor in named():
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield path, tensor


def attributes_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield other tensors that the module and its submodules have as attributes, as code."""
    for path, part in module.named_modules():
        for key, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                yield f"{path_text(path)}.{key}", value


def items_of(result: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in a nested result, with the code that takes them out."""
    if isinstance(result, torch.Tensor):
        yield "", result
    elif isinstance(result, dict):
        for key, item in result.items():
            yield from ((f"[{key!r}]{rest}", tensor) for rest, tensor in items_of(item))
    elif isinstance(result, list | tuple):
        for number, item in enumerate(result):
            yield from ((f"[{number}]{rest}", tensor) for rest, tensor in items_of(item))
    elif is_dataclass(result):
        for each in fields(result):
            held = getattr(result, each.name)
            yield from ((f".{each.name}{rest}", tensor) for rest, tensor in items_of(held))


def odd_item(result: Any) -> str:
    """Return the type of a result's first item that is neither a tensor nor None; "" for none."""
    if result is None or isinstance(result, torch.Tensor):
        return ""
    if isinstance(result, dict):
        return next(filter(None, map(odd_item, result.values())), "")
    if isinstance(result, list | tuple):
        return next(filter(None, map(odd_item, result)), "")
    if is_dataclass(result):
        held = (getattr(result, each.name) for each in fields(result))
        return next(filter(None, map(odd_item, held)), "")
    return type(result).__name__


def result_text(result: Any) -> str:
    """Return the nesting of a submodule's result and its tensors' layouts, as code."""
    if result is None:
        return "None"
    if isinstance(result, torch.Tensor):
        size, strides = tuple(result.shape), result.stride()
        return f"({result.dtype}, {size}, {strides}, {result.device.type!r})"
    if isinstance(result, dict):
        held = dict(result)
    elif isinstance(result, list | tuple):
        held = dict(enumerate(result))
    else:
        held = {each.name: getattr(result, each.name) for each in fields(result)}
    items = ", ".join(f"{key!r}: {result_text(item)}" for key, item in held.items())
    return f"[{type(result).__name__!r}, {{{items}}}]"


def is_of_torch(module: torch.nn.Module) -> bool:
    """Whether a module is one of torch alone, whose sizes do not depend on values."""
    return type(module).__module__.startswith("torch.nn.modules.") and not list(module.children())
