"""A package's guard: it counts calls, and finds the candidate's tensors; and the judged cases.

It is a text of a package's module `drop_in`, and replaces two names of the texts before.
"""

# mypy: ignore-errors
from __future__ import annotations

import os as _os

from actors.release.guard.call_guard import _Guard
from actors.release.guard.judged_values import _JUDGED, _leaf_specs, _modules, _warn_once
from actors.release.guard.module_changes import _Part
from actors.release.guard.module_state import _state_places, _unregistered_places

# --- copied from here on ---

# --- a package's guard: calls are counted, and the candidate's tensors are known ---

_STRICT = _os.environ.get("STARK_STRICT") == "1"  # raise where the plain forward would run


def _without_layouts(spec):
    """Return the nesting of a value and what in it is no tensor."""
    if spec[0] == "tensor":
        return "tensor"
    return spec if spec[0] == "plain" else (*spec[:2], tuple(map(_without_layouts, spec[2])))


_STATE_NAMES = _JUDGED["state"][1]
_ARGUMENTS = _JUDGED["inputs"][2]
_LEAVES = [leaf for spec in _ARGUMENTS for leaf in _leaf_specs(spec)]
_RESULTS = _leaf_specs(_JUDGED["outputs"])
_INIT = [spec[1] for spec in _JUDGED["init"][2] if spec[0] == "plain"]
_MOST_INSTANCES = 16  # of the candidate: as many threads are served at once
_forms = [  # the judged cases of one constructor: the operator has no other arguments
    form
    for form in (_JUDGED, *_JUDGED.get("more", ()))
    if form["init"] == _JUDGED["init"]
    and form["state"][1] == _STATE_NAMES
    and _without_layouts(form["inputs"]) == _without_layouts(_JUDGED["inputs"])
]
_calls = {"kernel": 0, "plain": 0, "reasons": {}}
_instances = []  # idle ones
_templates = {}  # device -> a plain module; its parameters have no memory


def _add_calls(total, kernel, plain, reasons):
    """Add numbers of calls to a total."""
    total["kernel"] += kernel
    total["plain"] += plain
    for reason, count in reasons.items():
        total["reasons"][reason] = total["reasons"].get(reason, 0) + count


class _PackageGuard(_Guard):
    """The guard, which also knows the module as it was constructed, and the candidate's tensors."""

    def __init__(self, module, arguments):
        super().__init__(module, arguments)
        self.as_constructed = [
            _Part(part, part.training, part is module) for part in module.modules()
        ]
        self.places = {}  # name -> (dictionary, key) in the candidate

    def __del__(self):
        _add_calls(_calls, self.kernel_calls, self.plain_calls, self.reasons)

    def construct(self, module, state, tensors):
        super().construct(module, state, tensors)
        kernel = self.kernel
        held = list(_state_places(kernel).values()) if hasattr(kernel, "modules") else []
        held += _unregistered_places(kernel)
        for name, (store, key) in state.items():
            for place in held:
                if place[0][place[1]] is store[key]:
                    self.places[name] = place


_Guard = _PackageGuard
_warn = _warn_once


def _warn_once(reason):
    """Warn that the plain forward runs, or raise where the environment forbids it."""
    if _STRICT:
        raise RuntimeError(f"STARK_STRICT=1, and the plain forward would run: {reason}")
    _warn(reason)
