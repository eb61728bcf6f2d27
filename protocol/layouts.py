"""The shape of a Python value made of tensors, without the tensors and without torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, TypeAlias

from protocol.frozen_struct import Value

ITEM_BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}


class Leaf(Value, frozen=True, kw_only=True, tag="tensor"):
    """One tensor."""

    dtype: str  # as torch spells it: "float32"
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None = None  # None: contiguous
    device: str = "cpu"

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


class Nest(Value, frozen=True, kw_only=True, tag="nest"):
    """A list, tuple, dict, dataclass or named tuple of layouts."""

    kind: Literal["list", "tuple", "dict", "dataclass", "namedtuple"]
    items: tuple[Layout, ...]
    keys: tuple[str, ...] = ()  # of a dict, in its order; the fields of a record
    type_name: str = ""  # of a dataclass or named tuple: "module:Class"


class Plain(Value, frozen=True, kw_only=True, tag="plain"):
    """A value that is written out: None, a number, a string, a dtype."""

    kind: Literal["none", "bool", "int", "float", "str", "dtype"]
    word: str = ""


class Other(Value, frozen=True, kw_only=True, tag="other"):
    """A value that can't be sent to another process."""

    type_name: str


Layout: TypeAlias = Leaf | Nest | Plain | Other


def tensors_of(layout: Layout) -> Iterator[Leaf]:
    """Yield the tensors of a layout, in order."""
    if isinstance(layout, Leaf):
        yield layout
    elif isinstance(layout, Nest):
        for item in layout.items:
            yield from tensors_of(item)


def describe(layout: Layout) -> str:
    """Return `layout` for people: "float32[64, 1024], int64[64]"."""
    if isinstance(layout, Leaf):
        return f"{layout.dtype}[{', '.join(map(str, layout.shape))}]"
    if isinstance(layout, Plain):
        return layout.word or layout.kind
    if isinstance(layout, Other):
        return layout.type_name
    return ", ".join(_bracketed(item) for item in layout.items)


def _bracketed(layout: Layout) -> str:
    return f"({describe(layout)})" if isinstance(layout, Nest) else describe(layout)
