"""A module's forward in parts: kernels for its regions, its own code for the rest.

The parts are those of a call that was traced.  Calls of that layout run in parts while the module
is as it was then; every other call takes the module's own forward and is counted with its reason.
"""

# mypy: ignore-errors
from __future__ import annotations

import functools
import importlib
import inspect

import torch
from torch.nn.modules import module as torch_module

from . import (
    FittedForward,
    _own_misfit,
    structure,
)
from .call_layouts import as_tuples, flat_layout, flat_specs
from .equal_values import _is_equal
from .site_state import KEYS, part_of

_PLAIN = (int, float, bool, str, type(None))
_GRADIENTS = "gradients are wanted (under torch.no_grad() the kernel runs)"


def place_region(model, path, winner, records, splits):
    """Fit one region of a module's forward; return why not, or ""."""
    record, splits = records[winner["regions"][path]], {} if splits is None else splits
    owner, _, name = path.rpartition(".")
    try:
        site = model.get_submodule(owner)
    except AttributeError:
        return "the model has no such module"
    placed = vars(site).get("forward")
    if not isinstance(placed, SplitForward):
        if isinstance(placed, FittedForward):
            return "the whole module has a kernel"
        if structure(site) != record["structure"]:
            return "it is not the module that the winner was made for"
        placed = splits.get(owner) or SplitForward(site, record)
        splits[owner] = placed
        site.__dict__.update(placed.own())
    placed.add(name, winner)
    return ""


class SplitForward(FittedForward):
    """The forward of one module instance, in parts."""

    def __init__(self, site, record):
        self.site = site
        self.replaced = {key: vars(site)[key] for key in KEYS if key in vars(site)}
        own = self.replaced.get("forward") or type(site).forward.__get__(site)
        self.__signature__ = inspect.signature(own)
        self.record, self.gradients = record, False
        self.layouts = [as_tuples(each["layout"]) for each in record["layouts"]]
        self.flat = [flat_specs(layout) for layout in self.layouts]
        self.same = [tuple(each["same"]) for each in record["layouts"]]
        self.module = importlib.import_module(f".{record['module']}", __package__)
        self.functions = [getattr(self.module, each["function"]) for each in record["layouts"]]
        inlined = [site, *(site.get_submodule(path) for path in record["inlined"])]
        self.parts = [part_of(part) for part in inlined]
        self.forwards = [(kind, kind.forward) for kind in {type(part) for part in inlined}]
        self.plain = _plain_values(site, inlined)
        self.lists = [
            (part._modules, dict(part._modules))
            for part in site.modules()
            if isinstance(part, (torch.nn.ModuleList, torch.nn.ModuleDict))
        ]
        self.missing = [
            (store, key)
            for part in inlined
            for store in (part._parameters, part._buffers)
            for key, tensor in store.items()
            if tensor is None
        ]
        self.twin, self.ties = self, ()  # there is nothing to construct
        self.known = {}  # name -> the region with its kernel
        self.used = set()  # the names of those that are in use
        self.original_calls, self.reasons = 0, {}
        self.called = []
        self.use()

    def use(self, *names):
        """Have these regions run their kernels, too."""
        self.used.update(names)
        regions = {
            name: self.known[name]
            if name in self.used
            else functools.partial(getattr(self.module, name), self.site)
            for name in self.record["regions"]
        }
        self.called = [
            tuple(regions[name] for name in each["regions"]) for each in self.record["layouts"]
        ]

    def leave(self):
        """Have no region run its kernel; what was counted stays."""
        self.used.clear()
        self.use()

    def add(self, name, winner):
        """Add a winner for one region, and use it."""
        if name not in self.known:
            self.known[name] = FittedRegion(self, name, winner)
        self.use(name)

    def __call__(self, *args, **kwargs):
        if torch.compiler.is_compiling():
            return self.original(
                *args, **kwargs
            )  # most of what `misfit` compares is no guard there
        number = -1 if kwargs else flat_layout(args, self.flat, torch.is_grad_enabled())
        if number >= 0:
            reason, tensors = "", args
        else:
            reason, tensors, number = self.fitting((args, kwargs))
        reason = reason or _own_misfit(self) or self.misfit(tensors, number)
        if not reason:
            try:
                return self.functions[number](self.site, tensors, *self.called[number])
            except self.module.OtherSizeError:
                reason = "a submodule returned another size"
        self.count(reason)
        return self.original(*args, **kwargs)

    def misfit(self, tensors, number):
        """Return what else differs from the traced call; "" for nothing."""
        for own, values, expected in self.plain:
            if not _is_equal(values(own), expected):
                return "an attribute of a submodule was changed"
        if any(modules != expected for modules, expected in self.lists):
            return "a submodule was replaced"
        if any(store.get(key) is not None for store, key in self.missing):
            return "a parameter was added"
        if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
            return "hooks of all modules are registered"
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            return "autocast is on"
        first = {}
        places = tuple(first.setdefault(id(each), place) for place, each in enumerate(tensors))
        return "" if places == self.same[number] else "other arguments are the same tensor"

    def tie(self):
        """Return why gradients are in the way; the regions have tensors to tie, this has none."""
        if torch.is_grad_enabled() and any(each.requires_grad for each in self.site.parameters()):
            return _GRADIENTS
        return ""

    def reports(self, path):
        """Yield the path and the calls of each region in use.

        Calls that took the module's own forward are calls of the original.
        """
        for name in sorted(self.used):
            found = self.known[name].counts()
            found["original"] += self.original_calls
            for reason, count in self.reasons.items():
                found["reasons"][reason] = found["reasons"].get(reason, 0) + count
            yield f"{path}.{name}" if path else name, found


class FittedRegion(FittedForward):
    """One region of a split forward: the kernel, or the region's own code."""

    def __init__(self, split, name, winner):
        paths = split.record["regions"][name]
        self.site, self.function = split.site, getattr(split.module, name)
        self.start(winner, {key: paths[path] for key, path in winner["state"].items()})
        self.parts, self.forwards = [], []  # the split forward has looked at them

    def original(self, *args):
        """Run the region's own code."""
        return self.function(self.site, *args)


def _plain_values(site, inlined):
    """Return the plain attributes of the submodules that stay calls, as they are.

    The forward may have read them.  It is (attributes, a function that returns values, the values).
    """
    found = []
    for part in site.modules():
        if part in inlined or type(part).__module__.startswith("torch.nn."):
            continue
        own = vars(part)
        names = [key for key, value in own.items() if isinstance(value, _PLAIN) and key[0] != "_"]
        values = functools.partial(_values, names)
        found.append((own, values, values(own)))
    return found


def _values(names, own):
    return [own.get(name) for name in names]
