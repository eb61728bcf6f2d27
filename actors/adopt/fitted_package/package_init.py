"""Faster kernels in a model, and out of it again; needs torch and nothing else.

    import stark_fitted
    stark_fitted.fit(model)      # the forward of the modules in sites.json
    stark_fitted.report(model)   # for each module: calls of the kernel, of the original, and why
    stark_fitted.unfit(model)    # the model as it was

A module's kernel runs for calls of the layout that it was judged for.  Every other call runs the
module's own forward and is counted with its reason.  Parameters, buffers, state_dict, hooks, copies
and pickles of the model are as without this package.
"""

# mypy: ignore-errors
from __future__ import annotations

import json
import warnings
from pathlib import Path

from .fitted_forward import FittedForward
from .site_state import KEYS, structure
from .split_forward import place_region


def fit(model, only=None, verbose=False, splits=None):
    """Put the winners into `model`; return the paths of the modules and regions that have one.

    Warns where none has.  `only`: names of winners.  Called twice, it does nothing the second
    time.  `splits`: forwards in parts that were made before, by path.
    """
    record = json.loads(Path(__file__).with_name("sites.json").read_text())
    placed, refused = [], []
    for winner in record["winners"]:
        if only is not None and winner["name"] not in only:
            continue
        for path in winner["sites"]:
            if path in winner.get("regions", ()):
                reason = place_region(model, path, winner, record["splits"], splits)
            else:
                reason = _place(model, path, winner)
            if not reason:
                placed.append(path)
                continue
            refused.append(f"{path}: {reason}")
            if verbose:
                print(f"stark_fitted: {refused[-1]}")
    if refused and not placed:
        warnings.warn(f"stark_fitted: no module has a kernel: {refused[0]}", stacklevel=2)
    return placed


def unfit(model):
    """Give all modules of `model` their own forward back; return their paths."""
    freed = []
    for path, module in model.named_modules():
        fitted = vars(module).get("forward")
        if isinstance(fitted, FittedForward):
            for key in KEYS:
                del module.__dict__[key]
            module.__dict__.update(fitted.replaced)
            fitted.leave()
            freed.append(path)
    return freed


def report(model):
    """Return path -> {"winner", "kernel", "original", "reasons", "in_graphs"} of all fitted places.

    "in_graphs": whether a graph of torch.compile holds the winner itself, whose calls there are
    not counted (winners that a run wrote are counted in graphs as elsewhere).
    """
    found = {}
    for path, module in model.named_modules():
        fitted = vars(module).get("forward")
        if isinstance(fitted, FittedForward):
            found.update(fitted.reports(path))
    return found


def _place(model, path, winner):
    """Fit one module; return why not, or ""."""
    try:
        site = model.get_submodule(path)
    except AttributeError:
        return "the model has no such module"
    if isinstance(vars(site).get("forward"), FittedForward):
        return ""
    if structure(site) != winner["structure"]:
        return "it is not the module that the winner was made for"
    site.__dict__.update(FittedForward(site, winner).own())
    return ""
