"""The forward of one fitted module: the winner's kernel, or the module's own code.

The kernel runs while call, module and modes are what it was judged for.  Every other call runs the
module's own forward, and is counted with the reason.
"""

# mypy: ignore-errors
from __future__ import annotations

import importlib
import inspect
import itertools
import weakref

import torch

from .call_modes import _mode_misfit
from .equal_values import _is_equal
from .layout_matching import as_tuples, flat_layout, flat_specs, in_strides, matches, misfit, nest
from .site_state import (
    KEYS,
    OWN,
    cards_of,
    changed_container,
    is_exporting,
    is_same,
    parts_of,
    spec_of,
    tensor_of,
)

_TRACED = (int, float, bool, str, torch.dtype, type(None))  # attributes that a compiler compares
_STOP = "_StopRecomputationError"  # with which torch.utils.checkpoint ends a forward early
_ALIGNMENT = 64  # bytes: where a task's tensors begin, so that vector loads may rely on it
_MOST_REASONS = 64  # of one module: every length of a text may be a reason of its own
_numbers = itertools.count()
_fitted = weakref.WeakValueDictionary()  # number -> forward; a compiler can take a number


class FittedForward:
    """The forward of one module instance: the kernel, or the module's own forward."""

    def __init__(self, site, winner):
        self.site = site
        self.replaced = {key: vars(site)[key] for key in KEYS if key in vars(site)}
        own = self.replaced.get("forward") or type(site).forward.__get__(site)
        self.__signature__ = inspect.signature(own)
        self.start(winner, winner["state"])
        self.parts = parts_of(site)
        self.forwards = [(kind, kind.forward) for kind in {type(part) for part in site.modules()}]

    def start(self, winner, state):
        """Read a winner's record.  `state`: the winner's tensors -> their paths in the module."""
        self.winner = winner["name"]
        self.layouts = [as_tuples(layout) for layout in winner["layouts"]]
        self.flat = [flat_specs(layout) for layout in self.layouts]
        self.results = [as_tuples(result) for result in winner["results"]]
        self.gradients = winner["gradients"]  # the kernel has its backward
        self.inputs, self.outputs = winner["inputs"], winner["outputs"]
        self.is_plain = self.results[0][0] == "tensor" and tuple(self.outputs) == (0,)
        self.state = state
        tensors = [tensor_of(self.site, path) for path in state.values()]
        self.specs = [spec_of(tensor) for tensor in tensors]  # in the order of `ties`
        self.module = importlib.import_module(f".{winner['module']}", __package__)
        self.is_bare = not hasattr(self.module, "_guard_of")  # a file that no run wrote
        self.twin = None
        self.guard = None  # of a winner that a run wrote
        self.device = _device_of(self.layouts[0]) or "cpu"
        self.autocast = getattr(torch, winner["autocast"]) if winner["autocast"] else None
        self.default_dtype = torch.get_default_dtype()
        self.ties = ()  # (dictionary, key, the twin's dictionary, the twin's key)
        self.kernel_calls, self.original_calls, self.reasons = 0, 0, {}
        self.number = next(_numbers)
        _fitted[self.number] = self
        self.traced_misfit = _while_traced(_own_misfit, self.number)
        self.mark_in_graphs = _while_traced(_mark_in_graphs, self.number)
        self.is_in_graphs = False  # whether a compiler has put the winner into a graph

    def original(self, *args, **kwargs):
        """Call the module's own forward; that of its class may be replaced at any time."""
        own = self.replaced.get("forward")
        if own is not None:
            return own(*args, **kwargs)
        return type(self.site).forward(self.site, *args, **kwargs)

    def __call__(self, *args, **kwargs):
        if torch.compiler.is_compiling():
            return self.traced(args, kwargs)
        wanted = not self.gradients and torch.is_grad_enabled()
        number = -1 if kwargs else flat_layout(args, self.flat, wanted)
        if number >= 0:
            reason, tensors = "", args
        else:
            reason, tensors, number = self.fitting((args, kwargs))
        reason = reason or _own_misfit(self)
        if not reason:
            inputs = [tensors[each] for each in self.inputs]
            run = self.kernel_result if self.autocast is None else self.result_of_autocast
            reason, result = run(inputs)
        if not reason:
            self.kernel_calls += 1
            return self.nested(result, number)
        self.count(reason)
        return self.original(*args, **kwargs)

    def count(self, reason):
        """Count a call of the original."""
        self.original_calls += 1
        if reason not in self.reasons and len(self.reasons) >= _MOST_REASONS:
            reason = "others"
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def kernel_result(self, inputs):
        """Return "" and what the kernel returns, or why it did not run and None."""
        guard = self.guard
        reason = (self.bare_misfit if guard is None else guard.misfit)(self.twin, inputs)
        if reason:
            return reason, None
        try:
            return "", self.twin(*inputs) if guard is None else guard.call(*inputs)
        except Exception as error:  # the kernel's own: the original is there
            if type(error).__name__ == _STOP:
                raise
            reason = f"the kernel failed ({type(error).__name__}: {str(error)[:200]})"
            if guard is not None:
                guard.off = reason
            return reason, None

    def result_of_autocast(self, inputs):
        """Return `kernel_result` of calls under autocast: the casts are a part of the kernel."""
        device = self.device
        if not torch.is_autocast_enabled(device):
            return (
                f"autocast is off, the kernel was judged for calls under it ({self.autocast})",
                None,
            )
        if torch.get_autocast_dtype(device) is not self.autocast:
            return f"autocast is to {torch.get_autocast_dtype(device)}, not {self.autocast}", None
        torch.set_autocast_enabled(device, False)
        try:
            return self.kernel_result(inputs)
        finally:
            torch.set_autocast_enabled(device, True)

    def bare_misfit(self, twin, tensors):
        """Return what a winner without a guard can't take; "" for nothing."""
        reason = _mode_misfit(self.device, self.default_dtype)
        if reason:
            return reason
        for tensor in (*tensors, *(store[key] for store, key, _, _ in self.ties)):
            if tensor.is_neg() or tensor.is_conj():
                return "a tensor is a view with other signs than its memory has"
            if tensor.data_ptr() % _ALIGNMENT:
                return f"a tensor does not begin at a multiple of {_ALIGNMENT} bytes"
        return ""

    def fitting(self, given):
        """Return ("", the call's tensors, which layout it has), or (why it has none, [], -1)."""
        for number, layout in enumerate(self.layouts):
            tensors = []
            if matches(given, layout, tensors, self.gradients):
                return "", tensors, number
        return misfit(given, self.layouts[0], [], self.gradients), [], -1

    def traced(self, args, kwargs):
        """What a compiler sees: the winner's operator, or the module's own forward."""
        if is_exporting() or self.autocast is not None:
            return self.original(*args, **kwargs)
        if self.is_bare and torch.is_autocast_enabled(self.device):
            return self.original(*args, **kwargs)
        reason, tensors, number = self.fitting((args, kwargs))
        if reason or self.traced_misfit() or not self.is_as_traced():
            return self.original(*args, **kwargs)
        self.mark_in_graphs()
        result = self.twin(*[tensors[each] for each in self.inputs])
        return self.nested(result, number)

    def is_as_traced(self):
        """Whether parameters and plain attributes are as when it was fitted.

        A compiler notes what is read here, and traces again when it changes.
        """
        for store, key, own, attribute in self.ties:
            if store.get(key) is not own[attribute]:
                return False
        for part, training, _, names, _, expected, copies in self.parts:
            if part.training is not training:
                return False
            for name, value in copies.items():
                if getattr(part, name) != value:
                    return False
            for name, value in zip(names, expected[2:]):
                if isinstance(value, _TRACED) and getattr(part, name) != value:
                    return False
        return True

    def nested(self, result, number):
        """Return the kernel's tensors as the module returns its own for calls of this layout."""
        if self.is_plain and isinstance(result, torch.Tensor):
            return in_strides(result, self.results[number])
        tensors = result if isinstance(result, (list, tuple)) else [result]
        chosen = [None if n < 0 else tensors[n] for n in self.outputs]
        return nest(self.results[number], iter(chosen))

    def bind(self):
        """Construct the winner around the module's own tensors; return why not, or ""."""
        with torch.random.fork_rng(cards_of(self.site)):
            twin = self.module.ModelNew()
        ties = []
        for attribute, path in self.state.items():
            owner, _, key = path.rpartition(".")
            part = self.site.get_submodule(owner)
            kind = "_parameters" if key in part._parameters else "_buffers"
            if getattr(part, kind).get(key) is None:
                return f"the parameter {path} was removed"
            ties.append((getattr(part, kind), key, getattr(twin, kind), attribute))
        device = next((store[key].device for store, key, _, _ in ties), None)
        for name, buffer in twin._buffers.items():
            if name not in self.state and device is not None:
                twin._buffers[name] = buffer.to(device)
        twin.train(self.site.training)
        self.twin, self.ties = twin, tuple(ties)
        self.guard = getattr(twin, "_kernel_guard", None)
        return self.tie()

    def tie(self):
        """Give the winner the module's tensors, also after they were replaced; return why not."""
        changed = False
        for (store, key, own, attribute), (dtype, shape, stride) in zip(self.ties, self.specs):
            tensor = store.get(key)
            if tensor is None:
                return f"the parameter {key} was removed"
            if tensor.dtype is not dtype or tensor.shape != shape:
                return f"the parameter {key} has another dtype or shape"
            if self.is_bare and tensor.stride() != stride:
                return f"the parameter {key} has other strides"
            if own[attribute] is not tensor:
                own[attribute] = tensor
                changed = True
        if changed and self.guard is not None:
            self.guard.unbind()
        return ""

    def counts(self):
        """Return the calls of the kernel and of the original, with the reasons."""
        guard = self.guard
        kernel, original, reasons = self.kernel_calls, self.original_calls, dict(self.reasons)
        if guard is not None:  # calls inside of compiled graphs
            kernel, original = kernel + guard.kernel_calls, original + guard.plain_calls
            for reason, count in guard.reasons.items():
                reasons[reason] = reasons.get(reason, 0) + count
        return {
            "winner": self.winner,
            "kernel": kernel,
            "original": original,
            "reasons": reasons,
            # A guard counts its calls there, too; a winner without one is a part of the graph.
            "in_graphs": self.is_bare and self.is_in_graphs,
        }

    def reports(self, path):
        """Yield the path and the calls of what has a kernel here."""
        yield path, self.counts()

    def leave(self):
        """Take no part any more: the module has its own forward back."""

    def reduced(self, protocol):
        """Return what copies and pickles of the module are made of: the module as it was."""
        made = type(self.site).__reduce_ex__(self.site, protocol)
        if len(made) > 2 and isinstance(made[2], dict):
            state = {key: made[2][key] for key in made[2] if key not in KEYS}
            made = (*made[:2], {**state, **self.replaced}, *made[3:])
        return made

    def replicated(self):
        """Return a replica of the module for another card, with the module's own forward."""
        replica = type(self.site)._replicate_for_data_parallel(self.site)
        for key in KEYS:
            del replica.__dict__[key]
        replica.__dict__.update(self.replaced)
        return replica

    def own(self):
        """Return what the module has of its own while it is fitted."""
        return dict(zip(KEYS, (self, self.reduced, self.replicated, self.refuse_script)))

    def refuse_script(self):
        raise RuntimeError("torch.jit.script takes no fitted module: call unfit(model) before it")


def _device_of(layout):
    """Return the device of the first tensor in a layout; None without one."""
    if layout[0] == "tensor":
        return layout[4]
    return None if layout[0] == "plain" else next(filter(None, map(_device_of, layout[2])), None)


def _own_misfit(self):
    """Return what of the module is not as when it was fitted; "" for nothing."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a transformation of torch.func is active"
    for number, entry in enumerate(self.parts):
        part, training, children, names, values, expected, copies = entry
        own = vars(part)
        if part is not self.site and (
            own["_forward_hooks"]
            or own["_forward_pre_hooks"]
            # A fitted part is as good as its original: this kernel replaces it, too.
            or ("forward" in own and not isinstance(own["forward"], FittedForward))
        ):
            return "a submodule has hooks or a forward of its own"
        if own["_modules"] != children:
            return "a submodule was replaced"
        if not is_same(values, own, expected):
            if part.training is not training:
                return "the module is in another mode (training or evaluation)"
            for key, value in zip(names, expected[2:]):
                if key not in copies and not _is_equal(own.get(key, OWN), value):
                    return f"the attribute {key} was changed"
            self.parts[number] = (*entry[:5], values(own), copies)
        changed = copies and changed_container(own, copies)
        if changed:
            return f"the attribute {changed} was changed"
    for kind, forward in self.forwards:
        if kind.forward is not forward:
            return f"the forward of the class {kind.__name__} was replaced"
    reason = self.bind() if self.twin is None else self.tie()
    if reason:
        return reason
    if torch.is_grad_enabled() and not self.gradients:
        for store, key, _, _ in self.ties:
            if store[key].requires_grad:
                return "gradients are wanted (under torch.no_grad() the kernel runs)"
    return ""


def _mark_in_graphs(self):
    """Note that a compiler puts the winner into a graph."""
    self.is_in_graphs = True


def _while_traced(function, number):
    """Return a function without arguments that calls `function` once, while a compiler traces.

    It takes the module's forward by its number: a compiler can't pass every value on.
    """

    def called():
        return function(_fitted[number])

    # What `torch.compiler.assume_constant_result` sets: the result is a constant of the graph.
    called._dynamo_marked_constant = True
    return called
