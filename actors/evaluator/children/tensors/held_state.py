"""What a module keeps from call to call: its state dict; plain attributes, tensors and numbers.

Numbers are handled as tensors of one element.  Of a trusted task's module; a candidate's is read
and written by `parameter_loading.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from actors.evaluator.children.tensors.tensor_bytes import layout_of
from actors.evaluator.children.tensors.tensor_copies import InputsBefore
from actors.evaluator.ipc.layout_checks import Leaf

MAX_DEPTH = 3  # of lists and dictionaries in each other
MOST_ITEMS = 64  # of one of them: a longer one is a table
REGISTERED = {"_parameters", "_buffers", "_modules"}  # the state dict has what is in them


def tensor_attributes(module: torch.nn.Module) -> Mapping[str, torch.Tensor]:
    """Return the tensors in plain attributes of all submodules, by name."""
    return {
        f"{path}.{key}" if path else key: value
        for path, part in module.named_modules()
        for key, value in vars(part).items()
        if isinstance(value, torch.Tensor)
    }


def plain_attributes(module: torch.nn.Module) -> Mapping[str, torch.Tensor]:
    """Return tensors and numbers in plain attributes of all submodules, by name.

    Those in lists and dictionaries, too: `history.0`.
    """
    return {
        ".".join(filter(None, (path, name))): value
        for path, part in module.named_modules()
        for key, held in vars(part).items()
        if key not in REGISTERED
        for name, value in _within(key, held, MAX_DEPTH)
    }


def _within(name: str, held: object, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    value = as_tensor(held)
    if value is not None:
        yield name, value
    elif not depth or not isinstance(held, list | dict) or len(held) > MOST_ITEMS:
        return
    elif isinstance(held, list):
        for place, item in enumerate(held):
            yield from _within(f"{name}.{place}", item, depth - 1)
    else:
        for key, item in held.items():
            if isinstance(key, str | int) and "." not in str(key):
                yield from _within(f"{name}.{key}", item, depth - 1)


def as_tensor(held: object) -> torch.Tensor | None:
    """Return what an attribute holds; None for what is neither a tensor nor a number."""
    if isinstance(held, torch.Tensor):
        return held.detach()
    if type(held) is float:
        return torch.tensor(held, dtype=torch.float64)
    if type(held) is int and abs(held) < 1 << 63:
        return torch.tensor(held)
    return None


class AttributesBefore:
    """What tells whether calls of a trusted module change its plain attributes, in any form."""

    def __init__(self, module: torch.nn.Module) -> None:
        held = _comparable(module)
        self._layouts = {name: layout_of(value) for name, value in held.items()}
        self._values = InputsBefore(list(held.values()))

    def differ(self, module: torch.nn.Module) -> bool:
        """Whether the module has others by now."""
        held = _comparable(module)
        if {name: layout_of(value) for name, value in held.items()} != self._layouts:
            return True
        return any(self._values.differences(list(held.values())))


def _comparable(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    held = plain_attributes(module).items()
    return {name: value for name, value in held if isinstance(layout_of(value), Leaf)}


def attribute(module: object, name: str) -> torch.Tensor | None:
    """Return what any module has under a name of `plain_attributes`."""
    for part in name.split("."):
        module = _part(module, part)
    return as_tensor(module)


def _part(holder: object, name: str) -> object:
    if isinstance(holder, list):
        return holder[int(name)] if name.isdecimal() and int(name) < len(holder) else None
    if isinstance(holder, dict):
        return holder.get(name, holder.get(int(name)) if name.isdecimal() else None)
    return getattr(holder, name, None)


def put_attribute(module: object, name: str, value: torch.Tensor) -> None:
    """Give an attribute a value that `as_tensor` has returned: a new tensor, or a number."""
    *path, last = name.split(".")
    holder: object = module
    for part in path:
        holder = _part(holder, part)
    is_number = type(_part(holder, last)) in (int, float)
    given = value.item() if is_number else value.clone()
    if isinstance(holder, list):
        holder[int(last)] = given
    elif isinstance(holder, dict):
        holder[last if last in holder or not last.isdecimal() else int(last)] = given
    else:
        setattr(holder, last, given)


def held_state(module: torch.nn.Module) -> Mapping[str, torch.Tensor]:
    """Return parameters, buffers, and tensors and numbers in plain attributes, by name."""
    return {**plain_attributes(module), **module.state_dict()}


def set_state(module: torch.nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    """Copy values into parameters and buffers of these names; other names are attributes.

    An attribute gets a new tensor: the one that it had may be an input, or an output.
    """
    own = module.state_dict()
    with torch.no_grad():
        for name, value in values.items():
            if name in own:
                own[name].copy_(value)
            else:
                put_attribute(module, name, value)
