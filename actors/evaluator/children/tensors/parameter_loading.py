"""Loads the task's parameters into a candidate, matched by name or by their first values.

A candidate may give parameters other names, or hold them as plain tensors.  Both modules were
constructed after the same seed, so a tensor of the same shape and the same first values is the same
parameter.  Runs in the runner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from actors.evaluator.ipc.runner_orders import ParametersLoaded

NAMES_SHOWN = 50


def load_parameters(
    module: object, wanted: dict[str, torch.Tensor], first: dict[str, torch.Tensor]
) -> tuple[ParametersLoaded, dict[str, torch.Tensor]]:
    """Copy `wanted` into `module`; `first`: the first values of the task's own parameters.

    The second value is the module's tensors by the names of `wanted`.
    """
    own = module.state_dict() if isinstance(module, torch.nn.Module) else {}
    missing = [name for name in wanted if name not in own]
    extra = {name: value for name, value in own.items() if name not in wanted}
    misshapen = [
        f"{name} is {list(own[name].shape)}, expected {list(value.shape)}"
        for name, value in wanted.items()
        if name in own and own[name].shape != value.shape
    ]
    found = {name: own[name] for name in wanted if name in own}
    plain = list(_plain_tensors(module))
    for name in list(missing):
        target = _find_like(first[name], list(extra.values()), equal=True)
        if target is None:
            target = _find_like(first[name], plain, equal=True)
        if target is None:
            target = _find_like(first[name], list(extra.values()), equal=False)
        if target is not None:
            missing.remove(name)
            extra = {key: value for key, value in extra.items() if value is not target}
            plain = [value for value in plain if value is not target]
            found[name] = target
    with torch.no_grad():
        for name, target in found.items():
            if target.shape == wanted[name].shape:
                target.copy_(wanted[name])
    loaded = ParametersLoaded(missing=tuple(missing), misshapen=tuple(misshapen)[:NAMES_SHOWN])
    return loaded, found


def state_of(
    module: object, loaded: dict[str, torch.Tensor], names: Sequence[str]
) -> dict[str, torch.Tensor]:
    """Return a module's parameters and buffers of these names, as far as it has them.

    `loaded`: where others of the task's were copied to.
    """
    own = module.state_dict() if isinstance(module, torch.nn.Module) else {}
    held = {**loaded, **own}
    return {name: held[name].detach() for name in names if name in held}


def _find_like(
    first: torch.Tensor, candidates: list[torch.Tensor], *, equal: bool
) -> torch.Tensor | None:
    """Return the first tensor with the shape and dtype of `first`; `equal`: and its values."""
    for value in candidates:
        if value.shape == first.shape and value.dtype == first.dtype:
            if equal and not torch.equal(value.to(first.device), first):
                continue
            return value
    return None


def _plain_tensors(module: object) -> Iterator[torch.Tensor]:
    """Yield the tensors that a module and its submodules hold without registering them."""
    within = module.modules() if isinstance(module, torch.nn.Module) else iter((module,))
    for each in within:
        for value in getattr(each, "__dict__", {}).values():
            if isinstance(value, torch.Tensor):
                yield value.detach()
