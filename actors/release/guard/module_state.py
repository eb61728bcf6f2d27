"""The state of a module: its parameters and buffers, their places, its constructor's arguments."""

# mypy: ignore-errors
from __future__ import annotations

import inspect as _inspect
import itertools as _itertools

import torch as _torch
from torch.nn import Module as Model

from actors.release.guard.judged_values import (
    _ALIGNMENT,
    _CASES,
    _OWN_ATTRIBUTES,
    _misfit,
)

# --- copied from here on ---


def _state_places(module):
    """Return name -> (dictionary, key) of all parameters and buffers in the state dict."""
    places = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        for store, left_out in (
            (part._parameters, ()),
            (part._buffers, part._non_persistent_buffers_set),
        ):
            for key, tensor in store.items():
                if tensor is not None and key not in left_out:
                    places[f"{prefix}.{key}" if prefix else key] = (store, key)
    return places


def _unregistered_places(module):
    """Return the places of tensors that a candidate keeps as plain attributes."""
    parts = module.modules() if isinstance(module, _torch.nn.Module) else [module]
    return [
        (vars(part), key)
        for part in parts
        for key, value in vars(part).items()
        if isinstance(value, _torch.Tensor)
    ]


def _counterparts(kernel, reference):
    """Return name -> place in the candidate of each of the module's tensors.

    By name; a tensor with another name is found by its shape and by the value that it was
    constructed with, since both modules were constructed after the same seed.
    """
    own = _state_places(kernel) if isinstance(kernel, _torch.nn.Module) else {}
    wanted = _state_places(reference)
    found = {name: own[name] for name in wanted if name in own}
    free = [place for name, place in own.items() if name not in wanted]
    free += _unregistered_places(kernel)
    for name in wanted.keys() - found.keys():
        first = wanted[name][0][wanted[name][1]].detach()
        for place in free:
            value = place[0][place[1]].detach().to(first.device)
            alike = value.shape == first.shape and value.dtype == first.dtype
            if alike and _torch.equal(value, first):
                found[name] = place
                free.remove(place)
                break
    return found


def _bound(arguments):
    """Return the constructor's arguments by name, defaults included; None if they do not fit."""
    try:
        call = _inspect.signature(Model.__init__).bind(None, *arguments[0], **arguments[1])
    except TypeError:
        return None
    call.apply_defaults()
    return dict(list(call.arguments.items())[1:])


def _constructor_misfit(arguments, case):
    """Return how the constructor's arguments differ from a case's; "" when they do not."""
    args, kwargs = arguments
    specs = _CASES[case]["init"][2]
    if not kwargs and len(args) == len(specs):
        pairs = zip(args, specs, _itertools.count())
        reasons = [_misfit(a, s, f"constructor argument {n}", loose=True) for a, s, n in pairs]
        return next(filter(None, reasons), "")
    if any(spec[0] != "plain" for spec in specs):
        return "the constructor's arguments are passed in another way than they were judged"
    given, judged = _bound(arguments), _bound(([spec[1] for spec in specs], {}))
    return "" if given == judged else f"it was constructed with {given}, judged with {judged}"


def _attributes(part):
    """Return the attributes of a submodule that its forward may read."""
    return [(key, value) for key, value in vars(part).items() if key not in _OWN_ATTRIBUTES]


def _fitting(cases, misfit):
    """Return the cases that `misfit` finds nothing against, and what it finds against the first."""
    reasons = [misfit(case) for case in cases]
    return [case for case, reason in zip(cases, reasons) if not reason], next(iter(reasons), "")


def _state_misfit(state, case):
    """Return how parameters and buffers differ from a case's; "" when they do not."""
    _, names, specs = _CASES[case]["state"]
    if set(names) != set(state):
        return f"its state has other names: {sorted(set(names) ^ set(state))[:3]}"
    for name, spec in zip(names, specs):
        store, key = state[name]
        reason = _misfit(store[key], spec, f"the parameter {name}")
        if not reason and store[key].data_ptr() % _ALIGNMENT:
            reason = f"the parameter {name} does not begin at a multiple of {_ALIGNMENT} bytes"
        if reason:
            return reason
    return ""
