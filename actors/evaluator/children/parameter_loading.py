"""Where a candidate keeps the task's parameters: by name, or by what they were constructed with.

A candidate may call them what it likes, or keep them as plain tensors.  Both sides were constructed
after the same seed, so what has the same shape and the same first values is the same parameter.
Runs in the runner.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from actors.evaluator.ipc.runner_orders import ParametersLoaded

NAMES_SHOWN = 50


def load_parameters(
    module: object, wanted: dict[str, torch.Tensor], first: dict[str, torch.Tensor]
) -> ParametersLoaded:
    """Copy `wanted` into `module`; `first` are the values that the task's own began with."""
    own = module.state_dict() if isinstance(module, torch.nn.Module) else {}
    missing = [name for name in wanted if name not in own]
    extra = {name: value for name, value in own.items() if name not in wanted}
    misshapen = [
        f"{name} is {list(own[name].shape)}, expected {list(value.shape)}"
        for name, value in wanted.items()
        if name in own and own[name].shape != value.shape
    ]
    pairs = [(own[name], value) for name, value in wanted.items() if name in own]
    plain = list(_plain_tensors(module))
    for name in list(missing):
        place = _like(first[name], list(extra.values()), same=True)
        place = _like(first[name], plain, same=True) if place is None else place
        place = _like(first[name], list(extra.values()), same=False) if place is None else place
        if place is not None:
            missing.remove(name)
            extra = {key: value for key, value in extra.items() if value is not place}
            plain = [value for value in plain if value is not place]
            pairs.append((place, wanted[name]))
    with torch.no_grad():
        for place, value in pairs:
            if place.shape == value.shape:
                place.copy_(value)
    return ParametersLoaded(
        missing=tuple(missing),
        misshapen=tuple(misshapen)[:NAMES_SHOWN],
    )


def _like(first: torch.Tensor, found: list[torch.Tensor], *, same: bool) -> torch.Tensor | None:
    for value in found:
        if value.shape == first.shape and value.dtype == first.dtype:
            if same and not torch.equal(value.to(first.device), first):
                continue
            return value
    return None


def _plain_tensors(module: object) -> Iterator[torch.Tensor]:
    """Yield the tensors that a module, and those in it, keep without registering them."""
    within = module.modules() if isinstance(module, torch.nn.Module) else iter((module,))
    for each in within:
        for value in getattr(each, "__dict__", {}).values():
            if isinstance(value, torch.Tensor):
                yield value.detach()
