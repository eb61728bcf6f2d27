"""What a module keeps from call to call: its state dict; plain attributes, tensors and numbers.

Numbers are handled as tensors of one element.  Of a trusted task's module; a candidate's is read
and written by `tensors/parameter_loading.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch


def tensor_attributes(module: torch.nn.Module) -> Mapping[str, torch.Tensor]:
    """Return the tensors in plain attributes of all submodules, by name."""
    return {
        f"{path}.{key}" if path else key: value
        for path, part in module.named_modules()
        for key, value in vars(part).items()
        if isinstance(value, torch.Tensor)
    }


def plain_attributes(module: torch.nn.Module) -> Mapping[str, torch.Tensor]:
    """Return tensors and numbers in plain attributes of all submodules, by name."""
    return {
        f"{path}.{key}" if path else key: value
        for path, part in module.named_modules()
        for key, held in vars(part).items()
        if (value := as_tensor(held)) is not None
    }


def as_tensor(held: object) -> torch.Tensor | None:
    """Return what an attribute holds; None for what is neither a tensor nor a number."""
    if isinstance(held, torch.Tensor):
        return held.detach()
    if type(held) is float:
        return torch.tensor(held, dtype=torch.float64)
    if type(held) is int and abs(held) < 1 << 63:
        return torch.tensor(held)
    return None


def put_attribute(owner: object, key: str, value: torch.Tensor) -> None:
    """Give an attribute a value that `as_tensor` has returned: a new tensor, or a number."""
    is_number = type(getattr(owner, key, None)) in (int, float)
    setattr(owner, key, value.item() if is_number else value.clone())


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
                owner, _dot, key = name.rpartition(".")
                put_attribute(module.get_submodule(owner), key, value)
