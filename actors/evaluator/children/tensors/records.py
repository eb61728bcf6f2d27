"""Dataclasses and named tuples among a module's inputs and outputs: their fields, and new ones.

A layout names a record's class by module and name.  A process that knows no such class, or one with
other fields, makes a stand-in with the same fields: the class of a task's own file is not in a
candidate's process, unless the candidate defines it, too.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections import namedtuple
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal

from actors.evaluator.ipc.layout_checks import Nest

RecordKind = Literal["dataclass", "namedtuple"]
OWN_MODULES = ("candidate", "task")  # the names that files are imported under in children


def record_kind(value: object) -> RecordKind | None:
    """Return which kind of record a value is; None for all other values."""
    if isinstance(value, tuple) and isinstance(getattr(value, "_fields", None), tuple):
        return "namedtuple"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return "dataclass"
    return None


def field_names(value: object) -> tuple[str, ...]:
    """Return the names of a record's fields, in their order."""
    if isinstance(value, tuple):
        return tuple(value._fields)  # type: ignore[attr-defined]  # a named tuple
    return tuple(field.name for field in dataclasses.fields(value))  # type: ignore[arg-type]


def field_values(value: object) -> list[object]:
    """Return the values of a record's fields, in their order."""
    return [getattr(value, name, None) for name in field_names(value)]


def type_name_of(value: object) -> str:
    """Return how a record's class is found in another process."""
    return f"{type(value).__module__}:{type(value).__qualname__}"[:200]


def like(value: object, items: Iterable[object]) -> object:
    """Return a record of the same class with other values."""
    return _make(type(value), field_names(value), list(items))


def from_layout(nest: Nest, items: Sequence[object]) -> object:
    """Return a record of the class that a layout names, or of a stand-in for it."""
    kind: Any = nest.kind
    return _make(_class_of(nest.type_name, kind, nest.keys), nest.keys, items)


def _make(kind: type, names: Sequence[str], items: Sequence[object]) -> object:
    if issubclass(kind, tuple):
        return kind._make(items)  # type: ignore[attr-defined]  # a named tuple
    values = dict(zip(names, items, strict=True))
    try:
        return kind(**values)
    # A constructor of the user's may take other arguments; then its fields are set as they are.
    except Exception:  # noqa: BLE001
        made = object.__new__(kind)
        for name, item in values.items():
            object.__setattr__(made, name, item)
        return made


@lru_cache(maxsize=64)
def _class_of(type_name: str, kind: RecordKind, names: tuple[str, ...]) -> type:
    module, _, name = type_name.partition(":")
    for place in OWN_MODULES if module in OWN_MODULES else (module,):
        found = _known_class(place, name)
        if found is not None and _fields_of(found) == names:
            return found
    short = name.rpartition(".")[2]
    short = short if short.isidentifier() else "Record"
    if kind == "namedtuple":
        return namedtuple(short, names)  # its names are data
    return dataclasses.make_dataclass(short, names)


def _known_class(module: str, name: str) -> type | None:
    try:
        place: Any = sys.modules.get(module) or importlib.import_module(module)
        for part in name.split("."):
            place = getattr(place, part)
    # A module of the user's may fail in any way when it is imported here.
    except Exception:  # noqa: BLE001
        return None
    return place if isinstance(place, type) else None


def _fields_of(kind: type) -> tuple[str, ...]:
    if issubclass(kind, tuple):
        return tuple(getattr(kind, "_fields", ()))
    if not dataclasses.is_dataclass(kind):
        return ()
    return tuple(field.name for field in dataclasses.fields(kind))
