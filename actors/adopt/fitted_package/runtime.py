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

import hashlib
import importlib
import inspect
import itertools
import json
import weakref
from pathlib import Path

import torch

_PLAIN = {"none": lambda word: None, "bool": lambda word: word == "True", "int": int,
          "float": float, "str": str, "dtype": lambda word: getattr(torch, word)}  # fmt: skip
_OWN = frozenset(vars(torch.nn.Module())) | {"forward", "__reduce_ex__"}
_OTHER = "another layout"
_numbers = itertools.count()
_fitted = weakref.WeakValueDictionary()  # number -> forward; a compiler can take a number


def fit(model, only=None, verbose=False):
    """Put the winners into `model`; return the paths of the modules that have one.

    `only`: names of winners.  Called twice, it does nothing the second time.
    """
    record = json.loads(Path(__file__).with_name("sites.json").read_text())
    placed = []
    for winner in record["winners"]:
        if only is not None and winner["name"] not in only:
            continue
        for path in winner["sites"]:
            reason = _place(model, path, winner)
            if not reason:
                placed.append(path)
            elif verbose:
                print(f"stark_fitted: {path}: {reason}")
    return placed


def unfit(model):
    """Give all modules of `model` their own forward back; return their paths."""
    freed = []
    for path, module in model.named_modules():
        fitted = vars(module).get("forward")
        if isinstance(fitted, FittedForward):
            for key in ("forward", "__reduce_ex__"):
                del module.__dict__[key]
            module.__dict__.update(fitted.replaced)
            freed.append(path)
    return freed


def report(model):
    """Return path -> {"winner", "kernel", "original", "reasons"} of all fitted modules."""
    found = {}
    for path, module in model.named_modules():
        fitted = vars(module).get("forward")
        if isinstance(fitted, FittedForward):
            found[path] = fitted.counts()
    return found


class FittedForward:
    """The forward of one module instance: the kernel, or the module's own forward."""

    def __init__(self, site, winner):
        self.site = site
        self.replaced = {
            key: vars(site)[key] for key in ("forward", "__reduce_ex__") if key in vars(site)
        }
        self.original = vars(site).get("forward") or type(site).forward.__get__(site)
        self.__signature__ = inspect.signature(self.original)
        self.winner = winner["name"]
        self.layouts = [_spec(layout) for layout in winner["layouts"]]
        self.output = _spec(winner["output"])
        self.gradients = winner["gradients"]  # the kernel has its backward
        self.inputs, self.outputs = winner["inputs"], winner["outputs"]
        self.state = winner["state"]
        self.module = importlib.import_module(f".{winner['module']}", __name__)
        self.twin = None
        self.ties = ()  # (dictionary, key, the twin's dictionary, the twin's key)
        self.parts = _parts(site)
        self.kernel_calls, self.original_calls, self.reasons = 0, 0, {}
        self.number = next(_numbers)
        _fitted[self.number] = self
        self.constant_misfit = _constant_misfit(self.number)

    def __call__(self, *args, **kwargs):
        if torch.compiler.is_compiling():
            return self.traced(args, kwargs)
        reason, tensors = self.fitting((args, kwargs))
        reason = reason or _state_misfit(self.number)
        if not reason:
            inputs = [tensors[number] for number in self.inputs]
            guard = getattr(self.twin, "_kernel_guard", None)
            reason = guard.misfit(self.twin, inputs) if guard is not None else ""
        if not reason:
            try:
                result = self.twin(*inputs) if guard is None else guard.call(*inputs)
            except Exception as error:  # the kernel's own: the original is there
                reason = f"the kernel failed ({type(error).__name__}: {str(error)[:200]})"
                if guard is not None:
                    guard.off = reason
            else:
                self.kernel_calls += 1
                return self.nested(result)
        self.original_calls += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        return self.original(*args, **kwargs)

    def fitting(self, given):
        """Return ("", the call's tensors) for a judged layout, else (why not, [])."""
        first = ""
        for layout in self.layouts:
            tensors = []
            reason = _misfit(given, layout, tensors, self.gradients)
            if not reason:
                return "", tensors
            first = first or reason
        return first, []

    def traced(self, args, kwargs):
        """What a compiler sees: the winner's operator, or the module's own forward."""
        if torch.compiler.is_exporting():
            return self.original(*args, **kwargs)
        reason, tensors = self.fitting((args, kwargs))
        if reason or self.constant_misfit():
            return self.original(*args, **kwargs)
        return self.nested(self.twin(*[tensors[number] for number in self.inputs]))

    def nested(self, result):
        """Return the kernel's tensors in the nesting of the module's own result."""
        tensors = result if isinstance(result, (list, tuple)) else [result]
        return _nest(self.output, iter([None if n < 0 else tensors[n] for n in self.outputs]))

    def bind(self):
        """Construct the winner around the module's own tensors."""
        with torch.random.fork_rng(_cards(self.site)):
            twin = self.module.ModelNew()
        ties = []
        for attribute, path in self.state.items():
            owner, _, key = path.rpartition(".")
            part = self.site.get_submodule(owner)
            kind = "_parameters" if key in part._parameters else "_buffers"
            ties.append((getattr(part, kind), key, getattr(twin, kind), attribute))
        device = next((store[key].device for store, key, _, _ in ties), None)
        for name, buffer in twin._buffers.items():
            if name not in self.state and device is not None:
                twin._buffers[name] = buffer.to(device)
        twin.train(self.site.training)
        self.twin, self.ties = twin, tuple(ties)
        self.tie()

    def tie(self):
        """Give the winner the module's tensors, also after they were replaced."""
        changed = False
        for store, key, own, attribute in self.ties:
            if own[attribute] is not store[key]:
                own[attribute] = store[key]
                changed = True
        guard = getattr(self.twin, "_kernel_guard", None)
        if changed and guard is not None:
            guard.unbind()

    def counts(self):
        """Return the calls of the kernel and of the original, with the reasons."""
        guard = getattr(self.twin, "_kernel_guard", None)
        kernel, original, reasons = self.kernel_calls, self.original_calls, dict(self.reasons)
        if guard is not None:  # calls inside of compiled graphs
            kernel, original = kernel + guard.kernel_calls, original + guard.plain_calls
            for reason, count in guard.reasons.items():
                reasons[reason] = reasons.get(reason, 0) + count
        return {"winner": self.winner, "kernel": kernel, "original": original, "reasons": reasons}

    def reduced(self, protocol):
        """Return what copies and pickles of the module are made of: the module as it was."""
        made = type(self.site).__reduce_ex__(self.site, protocol)
        if len(made) > 2 and isinstance(made[2], dict):
            state = {
                key: made[2][key] for key in made[2] if key not in ("forward", "__reduce_ex__")
            }
            made = (*made[:2], {**state, **self.replaced}, *made[3:])
        return made


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
    fitted = FittedForward(site, winner)
    site.__dict__["forward"] = fitted
    site.__dict__["__reduce_ex__"] = fitted.reduced
    return ""


def structure(module):
    """Return a text that changes with the module's classes, their sources and parameter shapes."""
    tensors = [
        f"{name} {tuple(tensor.shape)} {tensor.dtype}"
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    ]
    sources = []
    for kind in dict.fromkeys(type(part) for part in module.modules()):
        try:
            own = not kind.__module__.startswith("torch.nn.")
            sources.append(inspect.getsource(kind) if own else kind.__name__)
        except (OSError, TypeError):
            sources.append(kind.__qualname__)
    return hashlib.sha256("\n".join([repr(module), *tensors, *sources]).encode()).hexdigest()


def _parts(site):
    """Return (part, training, its submodules, its attributes) of a module and its submodules."""
    return [
        (
            part,
            part.training,
            dict(part._modules),
            [(key, value) for key, value in vars(part).items() if key not in _OWN],
        )
        for part in site.modules()
    ]


def _state_misfit(number):
    """Return what of the module is not as when it was fitted; "" for nothing."""
    self = _fitted[number]
    if self.twin is None:
        self.bind()
    self.tie()
    for part, training, children, attributes in self.parts:
        if part.training is not training:
            return "the module is in another mode (training or evaluation)"
        if part._modules != children:
            return "a submodule was replaced"
        if part is not self.site and (
            part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part)
        ):
            return "a submodule has hooks or a forward of its own"
        own = vars(part)
        for key, value in attributes:
            if own.get(key, _OWN) is not value:
                return f"the attribute {key} was changed"
    if torch.is_grad_enabled() and not self.gradients:
        for store, key, _, _ in self.ties:
            if store[key].requires_grad:
                return "gradients are wanted (under torch.no_grad() the kernel runs)"
    return ""


def _constant_misfit(number):
    """Return a function without arguments for a compiler, which can't pass every number on."""

    def misfit():
        return _state_misfit(number)

    # What `torch.compiler.assume_constant_result` sets: it is decided while a graph is traced.
    misfit._dynamo_marked_constant = True
    return misfit


def _misfit(value, spec, tensors, gradients):
    """Return how a value differs from the judged layout, or ""; collect its tensors."""
    kind = spec[0]
    if kind == "tensor":
        if not isinstance(value, torch.Tensor):
            return f"a {type(value).__name__} in place of a tensor"
        if value.shape != spec[2] or value.dtype is not spec[1]:
            if torch.compiler.is_compiling():
                return _OTHER  # a text of symbolic sizes would break the graph
            return f"{value.dtype}{list(value.shape)} in place of {spec[1]}{list(spec[2])}"
        if value.device.type != spec[4]:
            return f"a tensor on {value.device.type}"
        tensors.append(value)
        if torch.compiler.is_compiling():
            return ""
        if not value.is_contiguous() if spec[3] is None else value.stride() != spec[3]:
            return f"strides {value.stride()} in place of {spec[3] or 'contiguous ones'}"
        if value.requires_grad and torch.is_grad_enabled() and not gradients:
            return "gradients are wanted (under torch.no_grad() the kernel runs)"
        return ""
    if kind == "plain":
        same = type(value) is type(spec[1]) and value == spec[1]
        if torch.compiler.is_compiling():
            return "" if same else _OTHER
        return "" if same else f"{value!r} in place of {spec[1]!r}"
    if kind == "dict":
        if not isinstance(value, dict) or tuple(value) != spec[1]:
            return f"other keywords than {list(spec[1])}"
        value = tuple(value.values())
    elif not isinstance(value, (list, tuple)) or len(value) != len(spec[2]):
        return f"not {len(spec[2])} arguments"
    for item, inner in zip(value, spec[2]):
        reason = _misfit(item, inner, tensors, gradients)
        if reason:
            return reason
    return ""


def _spec(layout):
    """Return a stored layout as tuples: ("tensor", dtype, shape, stride, device), …"""
    kind = layout["type"]
    if kind == "tensor":
        stride = layout.get("stride")
        return ("tensor", getattr(torch, layout["dtype"]), tuple(layout["shape"]),
                stride and tuple(stride), layout.get("device", "cpu"))  # fmt: skip
    if kind == "plain":
        return ("plain", _PLAIN[layout["kind"]](layout.get("word", "")))
    items = tuple(_spec(item) for item in layout["items"])
    return (layout["kind"], tuple(layout.get("keys", ())), items)


def _nest(spec, tensors):
    """Return tensors in the nesting of a layout."""
    if spec[0] == "tensor":
        return next(tensors)
    if spec[0] == "plain":
        next(tensors)
        return spec[1]
    items = [_nest(inner, tensors) for inner in spec[2]]
    if spec[0] == "dict":
        return dict(zip(spec[1], items))
    return items if spec[0] == "list" else tuple(items)


def _cards(module):
    tensors = [*module.parameters(), *module.buffers()]
    return sorted({tensor.device for tensor in tensors if tensor.is_cuda}, key=str)
