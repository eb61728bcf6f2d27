"""How ModelNew reaches what a constructor made, and what a value holds."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from actors.agents.recipes.frontend.symbolic_values import (
    DataclassValue,
    MetaTensor,
    ModuleValue,
    OpaqueValue,
    ParameterValue,
    TaskFunction,
)
from actors.agents.recipes.ir.tensor_views import TensorView


def tensors_in(value: object) -> Iterator[TensorView]:
    """The tensors that a value holds."""
    if isinstance(value, TensorView):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_in(item)


def set_evaluating(module: ModuleValue, evaluating: bool = True) -> None:
    module.evaluating = evaluating
    inner = [*module.attributes.values(), *(module.children or [])]
    while inner:
        child = inner.pop()
        if isinstance(child, ModuleValue):
            set_evaluating(child, evaluating)
        elif isinstance(child, dict):
            inner += child.values()
        elif isinstance(child, list | tuple):
            inner += child


def assign_paths(module: ModuleValue, text: str) -> None:
    """Gives each module, parameter and attribute inside the text by which ModelNew reaches it."""
    module.text = text
    for name, value in module.attributes.items():
        module.attributes[name] = with_paths(value, f"{text}.{name}")
    for i, child in enumerate(module.children or []):
        if isinstance(child, ModuleValue):
            assign_paths(child, f"{text}[{i}]")


def with_paths(value: object, text: str) -> object:
    """The value with the text by which ModelNew reaches it and what is inside."""
    if isinstance(value, ModuleValue):
        if not value.text:  # one that is held twice is reached the first way
            assign_paths(value, text)
    elif isinstance(value, MetaTensor):
        return ParameterValue(text=text, shape=value.shape, dtype=value.dtype, line=value.line)
    elif isinstance(value, OpaqueValue | TensorView):  # a tensor's node is of a graph that is gone
        return OpaqueValue(text=text)
    elif isinstance(value, TaskFunction):
        around = {name: opaque_copy(item) for name, item in value.closure.items()}
        return msgspec.structs.replace(value, closure=around)
    elif isinstance(value, DataclassValue):
        return DataclassValue(kind=value.kind, fields={
            name: with_paths(item, f"{text}.{name}") for name, item in value.fields.items()
        })  # fmt: skip
    elif isinstance(value, list | tuple):
        return type(value)(with_paths(item, f"{text}[{i}]") for i, item in enumerate(value))
    elif isinstance(value, dict):
        return {key: with_paths(item, f"{text}[{key!r}]") for key, item in value.items()}
    return value


def opaque_copy(value: object) -> object:
    """A constructor's local as a function sees it later: no text reaches its tensors."""
    return (
        OpaqueValue()
        if isinstance(value, MetaTensor | TensorView) or [*tensors_in(value)]
        else value
    )


def flatten_output(output: object) -> tuple[int, ...]:
    if isinstance(output, int):
        return (output,)
    if isinstance(output, dict):
        output = tuple(output.values())
    if not isinstance(output, tuple | list):
        raise TypeError("an output is a node or a nesting of nodes")
    return tuple(node for item in output for node in flatten_output(item))


def is_plain(value: object) -> bool:
    """Whether `repr` of a value is Python text that makes it again, and `==` compares it."""
    if isinstance(value, tuple | list):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int | str)
