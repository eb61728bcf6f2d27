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

from .call_modes import _mode_misfit
from .fitted_forward import FittedForward, _device_of, _own_misfit
from .layout_matching import as_tuples, flat_layout, flat_specs
from .site_state import KEYS, SiteState, record_misfit, structure, tied

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
        reason = record_misfit(site, record["state"])
        if reason:
            return reason
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
        self.state = SiteState(site, record["leaves"], record["state"])
        self.parts = self.state.parts
        self.forwards = [(kind, kind.forward) for kind in {type(part) for part in inlined}]
        self.device = _device_of(self.layouts[0]) or "cpu"
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
            # Most of what `misfit` compares is no guard there.
            return self.original(*args, **kwargs)
        number = -1 if kwargs else flat_layout(args, self.flat, torch.is_grad_enabled())
        if number >= 0:
            reason, tensors = "", args
        else:
            reason, tensors, number = self.fitting((args, kwargs))
        reason = reason or _own_misfit(self) or self.misfit(tensors, number)
        if not reason:
            counts = [(each, each.kernel_calls) for each in self.known.values()]
            try:
                return self.functions[number](self.site, tensors, *self.called[number])
            except self.module.OtherResultError:
                reason = "a submodule returned another layout"
                for each, count in counts:  # they run once more, or their operations do
                    each.kernel_calls = count
        self.count(reason)
        return self.original(*args, **kwargs)

    def misfit(self, tensors, number):
        """Return what else differs from the traced call; "" for nothing."""
        reason = self.state.misfit() or _mode_misfit(self.device, self.state.default_dtype)
        if reason:
            return reason
        if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
            return "hooks of all modules are registered"
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            return "autocast is on"
        same = tied(tensors) == self.same[number]
        return "" if same else "other arguments are the same tensor"

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
