"""The class `ModelNew` of a winner: the task's `Model` with the guard around its forward."""

# mypy: ignore-errors
from __future__ import annotations

import functools as _functools
import inspect as _inspect

import torch as _torch
from torch.nn import Module as Model

from actors.release.guard.call_guard import _Guard, _run
from actors.release.guard.compiled_operator import _traced
from actors.release.guard.judged_values import _warn_once

# --- copied from here on ---

_FORWARD = _inspect.signature(Model.forward)
_PLAIN_CLASSES = _torch.nn.Module.__mro__


def _positional(bound):
    """Return a call's arguments by position; one left out before a given one has its default."""
    given = list(bound.arguments)[1:]
    parameters = list(_FORWARD.parameters.values())[1:]
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return bound.args[1:]
    names = [each.name for each in parameters]
    count = names.index(given[-1]) + 1 if given else 0
    return tuple(bound.arguments.get(each.name, each.default) for each in parameters[:count])


def _guard_of(module):
    """Return a new guard of a module."""
    guard = _Guard(module, module._kernel_arguments)
    replaced = "" if type(module) is ModelNew else _overridden(type(module))
    if replaced:
        guard.off = f"its class has a method {replaced} of its own"
    return guard


def _overridden(kind):
    """Return a method of `Model` that a class made of `ModelNew` replaces; "" for none."""
    classes = kind.__mro__[: kind.__mro__.index(ModelNew)]
    own = {name for each in Model.__mro__ if each not in _PLAIN_CLASSES for name in vars(each)}
    found = {name for each in classes for name in vars(each) if not name.startswith("__")}
    return min(found & own - {"forward"}, default="")  # a forward of its own calls this one


class _Unfinished:
    """What stands for the guard while a module's constructor runs: it may call or move itself."""

    off = "its constructor calls it"

    def misfit(self, module, args):
        return self.off

    def note_plain(self, reason):
        """A constructor's call is none of the user's."""

    def unbind(self):
        """There is no kernel to construct anew."""


class _Class(type(Model)):
    """The class of `ModelNew`, where torch.fx finds the forward of `Model`.

    torch.fx takes `forward` from the class, and reads and changes its code.
    """

    @property
    def forward(cls):
        own = next(vars(each)["forward"] for each in cls.__mro__ if "forward" in vars(each))
        if (
            own is not vars(ModelNew)["forward"]
            or not _torch.fx._symbolic_trace.is_fx_symbolic_tracing()
        ):
            return own
        _warn_once("torch.fx records plain operations")
        return Model.forward


class ModelNew(Model, metaclass=_Class):
    """The task's `Model` with faster kernels for what they were judged on.

    Everything else (gradients, other shapes and dtypes, no compiler) runs the plain forward; a
    warning says so once, and `kernel_stats()` counts it.
    """

    @_functools.wraps(Model.__init__)
    def __init__(self, *args, **kwargs):
        object.__setattr__(self, "_kernel_arguments", (args, kwargs))
        object.__setattr__(self, "_kernel_guard", _Unfinished())
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "_kernel_guard", _guard_of(self))

    def forward(self, *args, **kwargs):
        if _torch.compiler.is_compiling():
            return _traced(self, args, kwargs)
        if kwargs:
            bound = _FORWARD.bind(self, *args, **kwargs)
            if bound.kwargs:
                self._kernel_guard.note_plain("it is called with keyword-only arguments")
                return Model.forward(self, *args, **kwargs)
            args = _positional(bound)
        return _run(self, args)

    forward.__signature__ = _FORWARD

    def kernel_stats(self):
        """Return how many calls ran the kernels, how many the plain forward, and why."""
        guard = self._kernel_guard
        reasons = dict(guard.reasons)
        return {"kernel": guard.kernel_calls, "plain": guard.plain_calls, "reasons": reasons}

    def _apply(self, fn, *args, **kwargs):
        result = super()._apply(fn, *args, **kwargs)
        self._kernel_guard.unbind()
        return result

    def _replicate_for_data_parallel(self):
        replica = super()._replicate_for_data_parallel()
        object.__setattr__(replica, "_kernel_guard", _guard_of(replica))
        replica._kernel_guard.off = "it is a replica of torch.nn.DataParallel"
        return replica

    def __prepare_scriptable__(self):
        raise RuntimeError(
            "ModelNew does not support torch.jit.script: use the plain class Model, or torch.export"
        )

    def __getstate__(self):
        state = dict(super().__getstate__())
        state.pop("_kernel_guard", None)
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        object.__setattr__(self, "_kernel_guard", _guard_of(self))
