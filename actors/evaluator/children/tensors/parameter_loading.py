"""Loads the task's parameters into a candidate, matched by name or by their first values.

A candidate may give parameters other names, or hold them as plain tensors.  Both modules were
constructed after the same seed, so a tensor of the same shape and the same first values is the same
parameter.  Runs in the runner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import torch

from actors.evaluator.children.tensors import tensor_bytes
from actors.evaluator.children.tensors.held_state import attribute, put_attribute
from actors.evaluator.ipc.runner_orders import ParametersLoaded

NAMES_SHOWN = 50
# A tensor of a module: its name in the state dict, or its holder and the attribute there.
Place: TypeAlias = str | tuple[object, str]
Placed: TypeAlias = tuple[Place, torch.Tensor]


def load_parameters(
    module: object, wanted: dict[str, torch.Tensor], first: dict[str, torch.Tensor]
) -> tuple[ParametersLoaded, dict[str, Place]]:
    """Copy `wanted` into `module`; `first`: the first values of the task's own parameters.

    The second value says, by the names of `wanted`, where those are that have another name.
    """
    own = module.state_dict() if isinstance(module, torch.nn.Module) else {}
    missing = [name for name in wanted if name not in own]
    extra: list[Placed] = [(name, value) for name, value in own.items() if name not in wanted]
    misshapen = [
        f"{name} is {list(own[name].shape)}, expected {list(value.shape)}"
        for name, value in wanted.items()
        if name in own and own[name].shape != value.shape
    ]
    targets = {name: own[name] for name in wanted if name in own}
    places: dict[str, Place] = {}
    plain = list(_plain_tensors(module))
    for name in list(missing):
        found = _find_like(first[name], extra, equal=True)
        if found is None:
            found = _find_like(first[name], plain, equal=True)
        if found is None:
            found = _find_like(first[name], extra, equal=False)
        if found is not None:
            missing.remove(name)
            extra = [each for each in extra if each is not found]
            plain = [each for each in plain if each is not found]
            places[name], targets[name] = found
    with torch.no_grad():
        for name, target in targets.items():
            if target.shape == wanted[name].shape:
                _laid_out(module, name, target, wanted[name]).copy_(wanted[name])
    loaded = ParametersLoaded(missing=tuple(missing), misshapen=tuple(misshapen)[:NAMES_SHOWN])
    return loaded, places


def _laid_out(
    module: object, name: str, target: torch.Tensor, wanted: torch.Tensor
) -> torch.Tensor:
    """Return the module's tensor, in memory as the task's own is, such as channels_last.

    A winner works with the parameters of the model itself, which have these strides.  An order
    that the candidate chose stays: other tensors of its own may share that memory.
    """
    is_chosen = wanted.is_contiguous() or not target.is_contiguous()
    if is_chosen or not isinstance(module, torch.nn.Module):
        return target
    owner = dict((*module.named_parameters(), *module.named_buffers())).get(name)
    if owner is None or owner.data_ptr() != target.data_ptr() or owner.dtype != wanted.dtype:
        return target
    owner.data = torch.empty_like(wanted, device=owner.device)
    return owner.data


def state_of(
    module: object, places: Mapping[str, Place], names: Sequence[str]
) -> dict[str, torch.Tensor]:
    """Return a module's parameters, buffers and attributes of these names, as far as it has them.

    `places`: of those that have another name; a call may have put another tensor there.
    """
    own = module.state_dict() if isinstance(module, torch.nn.Module) else {}
    held = {
        name: own.get(place) if isinstance(place, str) else getattr(*place, None)
        for name, place in places.items()
    }
    held.update(own)
    found = {name: held[name] if name in held else attribute(module, name) for name in names}
    return {
        name: value.detach() for name, value in found.items() if isinstance(value, torch.Tensor)
    }


def set_state(
    module: object, places: Mapping[str, Place], values: Mapping[str, torch.Tensor]
) -> None:
    """Copy values into a module's tensors of these names, as far as it has them.

    One that can't be written to, such as a broadcast, is replaced, and so is one in an attribute,
    which may be an input or an output.
    """
    own = module.state_dict() if isinstance(module, torch.nn.Module) else {}
    with torch.no_grad():
        for name, target in state_of(module, places, tuple(values)).items():
            value = values[name]
            is_registered = name in places or name in own
            can_write = not target.is_inference() and tensor_bytes.is_dense(target)
            can_write = can_write and is_registered
            if can_write and target.shape == value.shape:
                target.copy_(value)
            else:
                _put(module, places.get(name, name), value.to(target.device))


def _put(module: object, place: Place, value: torch.Tensor) -> None:
    """Put another tensor at a place of a module."""
    if not isinstance(place, str):
        setattr(*place, value)
    elif isinstance(module, torch.nn.Module):
        parameter = dict(module.named_parameters()).get(place)
        if parameter is None:
            put_attribute(module, place, value)
        else:
            parameter.data = value


def _find_like(first: torch.Tensor, candidates: Sequence[Placed], *, equal: bool) -> Placed | None:
    """Return the first tensor with the shape and dtype of `first`; `equal`: and its values."""
    for each in candidates:
        _place, value = each
        if value.shape == first.shape and value.dtype == first.dtype:
            if equal and not torch.equal(value.to(first.device), first):
                continue
            return each
    return None


def _plain_tensors(module: object) -> Iterator[Placed]:
    """Yield the tensors that a module and its submodules hold without registering them."""
    within = module.modules() if isinstance(module, torch.nn.Module) else iter((module,))
    for each in within:
        for name, value in getattr(each, "__dict__", {}).items():
            if isinstance(value, torch.Tensor):
                yield (each, name), value.detach()
