"""The tensors in plain attributes in which a module keeps a state: of winner and module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from actors.evaluator.children.release_checks.tensor_agreement import (
    ReleaseCheckError,
    require_same,
)
from actors.evaluator.children.tensors.tensor_copies import storage_address


def held_attributes(module: Any, names: Sequence[str]) -> dict[str, object]:
    """Return attributes of a module or its submodules; {} for a traced or exported module."""
    wrapped = getattr(module, "_orig_mod", module)  # the module in a compiled one
    if not type(wrapped).__name__.startswith("Model"):
        return {}
    parts = dict(wrapped.named_modules(remove_duplicate=False))
    found = {}
    for name in names:
        path, _, key = name.rpartition(".")
        found[name] = vars(parts[path]).get(key)
    return found


def set_attribute(module: torch.nn.Module, name: str, value: object) -> None:
    """Replace an attribute of a module or of one of its submodules."""
    path, _, key = name.rpartition(".")
    setattr(module.get_submodule(path), key, value)


def require_same_attributes(
    winner: object, plain: torch.nn.Module, names: Sequence[str], where: str
) -> None:
    """Raise `ReleaseCheckError` unless the winner's state is the module's."""
    ours, theirs = held_attributes(winner, names), held_attributes(plain, names)
    for name, one in ours.items():
        other, what = theirs[name], f"{where}its {name} after a call: "
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            if type(one) is not type(other):
                raise ReleaseCheckError(f"{what}a {type(one).__name__}, not as the module's")
            continue
        forms = [(type(each), each.device, each.requires_grad) for each in (one, other)]
        if forms[0] != forms[1]:
            raise ReleaseCheckError(f"{what}{forms[0]}, expected {forms[1]}")
        require_same(one, other, what)


def shares_memory(one: object, other: object) -> bool:
    """Whether two tensors have the same memory."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    place = storage_address(one)
    return one is other or bool(place and place == storage_address(other))
