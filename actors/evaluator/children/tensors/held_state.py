"""What a module keeps from call to call: its state dict; plain attributes, tensors and numbers.

Numbers are handled as tensors of one element.  Of a trusted task's module; a candidate's is read
and written by `parameter_loading.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType

import torch

from actors.evaluator.children.tensors.tensor_bytes import layout_of
from actors.evaluator.children.tensors.tensor_copies import InputsBefore
from actors.evaluator.ipc.layout_checks import Leaf

MAX_DEPTH = 3  # of lists, tuples and dictionaries in each other
SEQUENCES = (list, tuple, deque)
MOST_ITEMS = 64  # of one of them: a longer one is a table
REGISTERED = {"_parameters", "_buffers", "_modules"}  # the state dict has what is in them
LEFT_OUT = {*REGISTERED, "training"}  # each module has that, and calls do not change it


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

    Those in lists, tuples, deques, dictionaries and other objects, too: `history.0`.  An object
    that several submodules share, such as a configuration, is named once.
    """
    seen: set[int] = set()
    return {
        ".".join(filter(None, (path, name))): value
        for path, part in module.named_modules()
        for key, held in vars(part).items()
        if key not in LEFT_OUT
        for name, value in _within(key, held, MAX_DEPTH, seen)
    }


def _within(
    name: str, held: object, depth: int, seen: set[int]
) -> Iterator[tuple[str, torch.Tensor]]:
    value = as_tensor(held)
    if value is not None:
        yield name, value
        return
    for key, item in _items(held, seen) if depth else ():
        if isinstance(key, str | int) and "." not in str(key):
            yield from _within(f"{name}.{key}", item, depth - 1, seen)


def _items(held: object, seen: set[int]) -> Iterable[tuple[object, object]]:
    """Return what is in a list, a tuple, a dictionary or an object that was not seen yet."""
    found: Mapping[object, object] | Sequence[object] = ()
    if isinstance(held, (*SEQUENCES, dict)):
        found = held
    elif not callable(held) and not isinstance(held, ModuleType) and id(held) not in seen:
        seen.add(id(held))
        found = dict(getattr(held, "__dict__", {}))
    if len(found) > MOST_ITEMS:
        return ()
    return found.items() if isinstance(found, Mapping) else enumerate(found)


def as_tensor(held: object) -> torch.Tensor | None:
    """Return what an attribute holds; None for what is neither a tensor nor a number."""
    if isinstance(held, torch.Tensor):
        return held.detach()
    if type(held) is float:
        return torch.tensor(held, dtype=torch.float64)
    if type(held) is bool or (type(held) is int and abs(held) < 1 << 63):
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
    if isinstance(holder, SEQUENCES) and name.isdecimal():
        return holder[int(name)] if int(name) < len(holder) else None
    if isinstance(holder, dict):
        return holder.get(name, holder.get(int(name)) if name.isdecimal() else None)
    return getattr(holder, name, None)


def put_attribute(module: object, name: str, value: torch.Tensor) -> None:
    """Give an attribute a value that `as_tensor` has returned: a new tensor, or a number."""
    _with_value(module, name.split("."), value)


def _with_value(holder: object, path: Sequence[str], value: torch.Tensor) -> object:
    """Return what an attribute holds, with a value at a place in it; a tuple becomes a new one."""
    if not path:
        return value.item() if type(holder) in (bool, int, float) else value.clone()
    name, before = path[0], _part(holder, path[0])
    after = _with_value(before, path[1:], value)
    if isinstance(holder, tuple) and name.isdecimal():
        items = [after if place == int(name) else item for place, item in enumerate(holder)]
        return type(holder)._make(items) if hasattr(holder, "_make") else tuple(items)
    if after is before:
        return holder
    if isinstance(holder, list | deque):
        holder[int(name)] = after
    elif isinstance(holder, dict):
        holder[name if name in holder or not name.isdecimal() else int(name)] = after
    else:
        setattr(holder, name, after)
    return holder


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
