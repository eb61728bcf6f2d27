"""What a winner's file says that it was judged on, read without running the file."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from protocol.layouts import Leaf

NAME = "_JUDGED"  # the dictionary in a winner's file; `actors/release/composition.py` writes it
Tensors = tuple[tuple[str, tuple[int, ...], tuple[int, ...] | None], ...]


def judged_inputs(source: str) -> list[Tensors]:
    """Return (dtype, shape, stride) of the inputs of every judged case; [] for an unknown file."""
    return [_tensors(spec) for spec in _values(_literal(source), "inputs")]


def is_judged_with_gradients(source: str) -> bool:
    """Whether a winner was judged with its backward."""
    return any(isinstance(found, tuple) for found in _values(_literal(source), "gradients"))


def tensors_of_layouts(leaves: Sequence[Leaf]) -> Tensors:
    """Return leaves in the form of `judged_inputs`."""
    return tuple((leaf.dtype, tuple(leaf.shape), leaf.stride) for leaf in leaves)


def _literal(source: str) -> Any:
    """Return the value of the dictionary; dtypes are their names."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == NAME:
                return _value(value)
    return None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(_value(item) for item in items)
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_value(key): _value(value) for key, value in pairs if key is not None}
        case ast.Attribute(attr=name):
            return name
    return None


def _values(value: Any, key: str) -> Iterator[Any]:
    """Yield the values of a key in nested dictionaries."""
    if isinstance(value, dict):
        if key in value:
            yield value[key]
        value = tuple(value.values())
    if isinstance(value, tuple):
        for item in value:
            yield from _values(item, key)


def _tensors(spec: Any) -> Tensors:
    """Return the tensors of a literal such as ("list", (), (("tensor", "float32", …), …))."""
    match spec:
        case ("tensor", str(dtype), tuple(shape), stride, *_):
            return ((dtype, shape, stride),)
        case tuple():
            return tuple(tensor for item in spec for tensor in _tensors(item))
    return ()
