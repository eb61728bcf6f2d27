"""What of a module a kernel or a trace relies on: submodules, modes, attributes and tensors."""

# mypy: ignore-errors
from __future__ import annotations

import operator

import torch

# What a fitted module has of its own; torch.jit.script calls the last one.
KEYS = ("forward", "__reduce_ex__", "_replicate_for_data_parallel", "__prepare_scriptable__")
OWN = frozenset(vars(torch.nn.Module())) | set(KEYS)
PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device)
MOST_ITEMS = 64  # of a container that is compared by value


def parts_of(site):
    """Return what of a module and its submodules must stay: a tuple for each of them.

    It is (part, training, its submodules, names of its attributes, a function that returns their
    values, the values, copies of the small containers among them by name).
    """
    return [part_of(part) for part in site.modules()]


def part_of(part):
    """Return what of a module alone must stay."""
    names = [key for key in vars(part) if key not in OWN]
    # One call for all of them, for it runs at every call; twice, so that it is always a tuple.
    values = operator.itemgetter("training", "training", *names)
    found, children = values(vars(part)), dict(part._modules)
    return part, part.training, children, names, values, found, copies_of(vars(part), names)


def copies_of(own, names):
    """Return copies of the small containers of plain values among attributes, by name."""
    return {
        key: copied(own[key])
        for key in names
        if type(own[key]) in (list, tuple, dict, set) and 0 <= size_of(own[key]) <= MOST_ITEMS
    }


def size_of(value):
    """Return how many plain values are in a value; less than 0 if others are in it."""
    if type(value) in PLAIN:
        return 1
    if type(value) not in (list, tuple, dict, set):
        return -MOST_ITEMS
    if len(value) > MOST_ITEMS:
        return len(value)
    items = [*value.keys(), *value.values()] if type(value) is dict else value
    sizes = [size_of(item) for item in items]
    return -MOST_ITEMS if any(size < 0 for size in sizes) else sum(sizes)


def copied(value):
    """Return a copy of nested containers."""
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    return type(value)(map(copied, value)) if type(value) in (list, tuple, set) else value


def equal(found, value):
    """Whether two nested containers of plain values are equal."""
    if type(found) is not type(value):
        return False
    if type(value) in (list, tuple):
        return len(found) == len(value) and all(map(equal, found, value))
    if type(value) is dict:
        return equal([*found.items()], [*value.items()])
    return found is value or found == value


def changed_container(own, copies):
    """Return the name of the first container that is not as its copy; "" for none."""
    return next((key for key, copy in copies.items() if not equal(own.get(key), copy)), "")


def spec_of(tensor):
    """Return what a kernel relies on of a tensor of its module."""
    return tensor.dtype, tensor.shape, tensor.stride()
