"""The Python text by which ModelNew reaches the values that a constructor made."""

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
    """Put a module and all modules inside of it in evaluation or training mode."""
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
    """Give each module, parameter and attribute inside the text by which ModelNew reaches it."""
    module.text = text
    for name, value in module.attributes.items():
        module.attributes[name] = with_paths(value, f"{text}.{name}")
    for i, child in enumerate(module.children or []):
        if isinstance(child, ModuleValue):
            assign_paths(child, f"{text}[{i}]")


def with_paths(value: object, text: str) -> object:
    """The value, and the values inside of it, with the text by which ModelNew reaches them."""
    if isinstance(value, ModuleValue):
        if not value.text:  # a module with two names keeps the first
            assign_paths(value, text)
    elif isinstance(value, MetaTensor):
        return ParameterValue(text=text, shape=value.shape, dtype=value.dtype, line=value.line)
    elif isinstance(
        value, OpaqueValue | TensorView
    ):  # the tensor's node belongs to a graph that was dropped
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
    """A constructor's local variable as a closure has it later: no text reaches its tensors."""
    return (
        OpaqueValue()
        if isinstance(value, MetaTensor | TensorView) or [*tensors_in(value)]
        else value
    )


def flatten_output(output: object) -> tuple[int, ...]:
    """The nodes of an output, which may be nested in tuples, lists and dicts."""
    if isinstance(output, int):
        return (output,)
    if isinstance(output, dict):
        output = tuple(output.values())
    if not isinstance(output, tuple | list):
        raise TypeError("an output is a node or a nesting of nodes")
    return tuple(node for item in output for node in flatten_output(item))


def is_plain(value: object) -> bool:
    """Whether `repr` gives Python text for the value, and `==` compares it."""
    if isinstance(value, tuple | list):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int | str)
