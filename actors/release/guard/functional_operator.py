"""The operator `forward` of a package: the module as a function of tensors; and what needs it.

It is the last text of a package's module `drop_in`, and replaces one name of the texts before.
"""

# mypy: ignore-errors
from __future__ import annotations

import itertools as _itertools
import sys as _sys
import threading as _threading

import torch as _torch
from torch.nn import Module as Model

from actors.release.guard.call_context import _context_misfit
from actors.release.guard.carried_state import _KEEPS_STATE
from actors.release.guard.compiled_operator import _LIBRARY, _fresh, _is_exporting, _traced
from actors.release.guard.judged_values import (
    _ALIGNMENT,
    _DEVICE,
    _JUDGED,
    _LIMITS,
    _has_record,
    _leaf_specs,
    _misfit,
    _modules,
    _nest,
    _tensors_of,
)
from actors.release.guard.kernel_module import _NO_KERNELS
from actors.release.guard.module_state import _bound, _state_places
from actors.release.guard.package_guard import (
    _ARGUMENTS,
    _INIT,
    _LEAVES,
    _MOST_INSTANCES,
    _RESULTS,
    _STATE_NAMES,
    _add_calls,
    _calls,
    _forms,
    _instances,
    _templates,
    _warn_once,
)
from actors.release.guard.winner_class import _FORWARD, ModelNew

# --- copied from here on ---

# --- the operator `forward`: the module as a function of tensors ---


class _Instance:
    """One candidate, which gets the tensors of each call in place of its parameters."""

    def __init__(self, device, form):
        module = ModelNew(*_INIT).to(device, form.get("dtype"))
        self.guard = module._kernel_guard
        self.off = self.guard.bind(module, [])
        self.device, self.form = device, form
        self.places = [self.guard.places.get(name) for name in _STATE_NAMES]
        self.guard.ties = ()
        self.release_state()

    def run(self, args, state):
        """Call the candidate with these parameters and buffers."""
        try:
            for place, tensor in zip(self.places, state):
                if place is not None:
                    place[0][place[1]] = tensor
            return self.guard.call(*args)
        finally:
            self.release_state()

    def release_state(self):
        """Hold no tensor of a caller between calls."""
        for place in self.places:
            if place is not None:
                place[0][place[1]] = None


def _template(device):
    """Return a plain module for `torch.func.functional_call`; its parameters have no memory."""
    if device not in _templates:
        built = []

        def build():
            with _torch.random.fork_rng([device] if device.type == "cuda" else []):
                module = Model(*_INIT)
            for store, key in _state_places(module).values():
                store[key] = store[key].detach().to("meta")
            built.append(module.requires_grad_(False))

        # Another thread has no fake tensors, no default device and no other mode of the caller.
        thread = _threading.Thread(target=build)
        thread.start()
        thread.join()
        _templates[device] = built[0]
    return _templates[device]


def _plain_outputs(tensors, fake=False):
    """Return the tensors of the plain module's outputs, as a function of inputs and state."""
    args = _nested(tensors)
    state = dict(zip(_STATE_NAMES, tensors[len(_LEAVES) :]))
    device = tensors[0].device if tensors else _torch.device(_DEVICE)
    template = _template(device)
    own = {**dict(template.named_parameters()), **dict(template.named_buffers())}
    dtypes = {
        tensor.dtype: state[name].dtype
        for name, tensor in own.items()
        if name in state and tensor.is_floating_point()
    }
    for name, buffer in template.named_buffers():
        if name not in state:  # not in the state dict
            dtype = dtypes.get(buffer.dtype, buffer.dtype)
            empty = _torch.empty(buffer.shape, dtype=dtype, device=device)
            # Lifted, as torch.tensor does: a compiler that traces the derivative has a constant.
            state[name] = empty if fake else _torch.ops.aten.lift_fresh(buffer).to(device, dtype)
        elif template.training and not fake:  # a call may change it
            state[name] = state[name].clone()
    return _tensors_of(_torch.func.functional_call(template, state, tuple(args)))


def _nested(tensors):
    """Return the arguments of the module's forward."""
    flat = iter(tensors[: len(_LEAVES)])
    return [_nest(spec, flat) for spec in _ARGUMENTS]


def _fitting_form(tensors):
    """Return the judged case that a call is and "", or None and why the kernels can't take it."""
    if _NO_KERNELS:
        return None, _NO_KERNELS
    for limit in ("operator", "second instance"):
        if limit in _LIMITS:
            return None, f"its kernels were not right as a function ({limit})"
    reason = _context_misfit()
    if reason:
        return None, reason
    for tensor in tensors:
        if tensor.data_ptr() % _ALIGNMENT:
            return None, f"a tensor does not begin at a multiple of {_ALIGNMENT} bytes"
    names = [f"input {number}" for number in range(len(_LEAVES))]
    names += [f"the parameter {name}" for name in _STATE_NAMES]
    reasons = []
    for form in _forms:
        specs = [*_leaf_specs(form["inputs"]), *form["state"][2]]
        checks = (_misfit(*each) for each in zip(tensors, specs, names))
        reasons.append(next(filter(None, checks), ""))
        if not reasons[-1]:
            return form, ""
    return None, reasons[0]


def _idle_instance(device, form):
    """Take an instance of the candidate out of the idle ones, or make one."""
    for number, instance in enumerate(_instances):
        if instance.device == device and instance.form is form:
            try:
                return _instances.pop(number)
            except IndexError:  # another thread took one
                break
    if device.type == "cuda" and _torch.cuda.is_current_stream_capturing():
        return None
    return _Instance(device, form)


def _forward(*tensors):
    """Return the outputs of the kernels, or of the plain module where they can't be used."""
    with _torch.no_grad():
        form, reason = _fitting_form(tensors)
        outputs = None
        if not reason:
            outputs, reason = _kernel_outputs(form, tensors)
        if reason:
            _calls["plain"] += 1
            _calls["reasons"][reason] = _calls["reasons"].get(reason, 0) + 1
            _warn_once(reason)
            outputs = _plain_outputs(tensors)
        outputs = _fresh(outputs, tensors)
    return outputs[0] if len(_RESULTS) == 1 else tuple(outputs)


def _kernel_outputs(form, tensors):
    """Return the kernels' outputs and "", or None and why they did not run."""
    device = tensors[0].device if tensors else _torch.device(_DEVICE)
    instance = _idle_instance(device, form)
    if instance is None:
        return None, "a CUDA graph is captured before the kernels were set up by an ordinary call"
    reason = instance.off or (_DEVICE == "cuda" and instance.guard.card_misfit(tensors)) or ""
    if "threads" in _LIMITS and instance.guard.thread != _threading.get_ident():
        reason = "its kernels were not right in several threads"
    outputs = None
    if not reason:
        try:
            outputs = _tensors_of(instance.run(_nested(tensors), tensors[len(_LEAVES) :]))
            _calls["kernel"] += 1
        except Exception as error:  # the candidate's own: the plain forward is there
            said = " ".join(str(error).split())[:300]
            reason = instance.off = f"its kernels failed ({type(error).__name__}: {said})"
    if len(_instances) < _MOST_INSTANCES:
        _instances.append(instance)
    return outputs, reason


def _fake_forward(*tensors):
    """Return what `_forward` returns, without values: contiguous, for any shapes."""
    with _torch.no_grad():
        outputs = [
            _torch.empty(output.shape, dtype=output.dtype, device=output.device)
            for output in _plain_outputs(tensors, fake=True)
        ]
    return outputs[0] if len(_RESULTS) == 1 else tuple(outputs)


def _save_inputs(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _differentiate(ctx, *grads):
    """The derivative: the plain module is computed again, with gradients."""
    tensors, wanted = ctx.saved_tensors, ctx.needs_input_grad
    again = _torch.is_grad_enabled()  # second derivatives are wanted
    with _torch.enable_grad():
        own = [tensor.view_as(tensor) if again else tensor.detach() for tensor in tensors]
        held = [
            tensor.requires_grad_() if want and not again else tensor
            for tensor, want in zip(own, wanted)
        ]
        outputs = _plain_outputs(held)
        pairs = [(o, g) for o, g in zip(outputs, grads) if g is not None and o.requires_grad]
        sources = [tensor for tensor, want in zip(held, wanted) if want]
        found = [None] * len(sources)
        if pairs:
            results, given = zip(*pairs)
            found = _torch.autograd.grad(
                results, sources, given, allow_unused=True, create_graph=again
            )
    found = iter(found)
    return tuple(next(found) if want else None for want in wanted)


def _argument_names():
    """Return a name for each tensor of the operator: of the forward's signature, then the state."""
    names = []
    parameters = list(_FORWARD.parameters)[1:]
    for number, spec in enumerate(_ARGUMENTS):
        name = parameters[number] if number < len(parameters) else f"input_{number}"
        leaves = len(_leaf_specs(spec))
        names += [name] if spec[0] == "tensor" else [f"{name}_{leaf}" for leaf in range(leaves)]
    names += _STATE_NAMES
    plain = ["".join(c if c.isascii() and c.isalnum() else "_" for c in name) for name in names]
    return [  # in a schema no name begins with a digit, and "self" and "out" have a meaning
        f"{name}_{number}"
        if name in plain[:number] and name[0].isalpha()
        else f"t{number}_{name}"
        if not name[0].isalpha() or name in ("self", "out")
        else name
        for number, name in enumerate(plain)
    ]


def _define_forward():
    """Register the operator; return its overload.

    A second copy of this package in one process has the same namespace, and uses the same operator.
    """
    space = _LIBRARY.ns
    if not hasattr(getattr(_torch.ops, space), "forward"):
        results = ", ".join(["Tensor"] * len(_RESULTS))
        arguments = ", ".join(f"Tensor {name}" for name in _argument_names())
        _LIBRARY.define(
            f"forward({arguments}) -> {results if len(_RESULTS) == 1 else f'({results})'}"
        )
        _LIBRARY.impl("forward", _forward, "CompositeExplicitAutograd")
        name = f"{space}::forward"
        _torch.library.register_fake(name, _fake_forward, lib=_LIBRARY)
        _torch.library.register_autograd(
            name, _differentiate, setup_context=_save_inputs, lib=_LIBRARY
        )
    return getattr(_torch.ops, space).forward.default


def stats():
    """Return how many calls of the operator and of all modules ran the kernels, and why not.

    Keys: "kernel", "plain", "reasons" (reason -> calls).
    """
    total = {**_calls, "reasons": dict(_calls["reasons"])}
    for module in list(_modules.values()):
        guard = module._kernel_guard
        _add_calls(total, guard.kernel_calls, guard.plain_calls, guard.reasons)
    return total


def _export_misfit(handle):
    """Return why an exported graph must hold the plain operations; "" when it may not."""
    module = _modules[handle]
    guard = module._kernel_guard
    for part in guard.as_constructed:
        buffers = part.module._buffers.values()
        if part.training and any(each is not None for each in buffers):
            return "it may change its buffers in training (after eval() the kernels run)"
        if part.misfit():
            return part.misfit()
    if _bound(guard.arguments) != _bound((_INIT, {})):
        return "it was constructed with other arguments than the judged ones"
    return guard.off


# What `torch.compiler.assume_constant_result` sets: it is decided while a graph is recorded.
_export_misfit._dynamo_marked_constant = True


def _exported(module, args, kwargs):
    """What torch.export records: the operator, for any shapes; None for the plain operations."""
    if (
        forward is None
        or kwargs
        or _has_record(_JUDGED["outputs"])
        or len(args) != len(_ARGUMENTS)
        or _torch.is_autocast_enabled(_DEVICE)
    ):
        return None
    inputs = _tensors_of(list(args))
    if len(inputs) != len(_LEAVES) or _export_misfit(module._kernel_guard.handle):
        return None
    kinds = [[leaf[1] for leaf in _leaf_specs(form["inputs"])] for form in _forms]
    if [tensor.dtype for tensor in inputs] not in kinds:
        return None
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    if not all(name in held for name in _STATE_NAMES):  # tensors with two names
        return None
    result = forward(*inputs, *[held[name] for name in _STATE_NAMES])
    return _nest(_JUDGED["outputs"], iter([result] if len(_RESULTS) == 1 else result))


_compiled = _traced


def _traced(module, args, kwargs):
    """What a compiler or torch.export sees."""
    if _is_exporting():
        result = _exported(module, args, kwargs)
        if result is not None:
            return result
    return _compiled(module, args, kwargs)


# The original of a call with a dataclass needs the dataclass, and an operator takes tensors.  A
# module whose calls change its attributes is no function of tensors.
_is_function = (
    _RESULTS
    and not _KEEPS_STATE
    and len(_INIT) == len(_JUDGED["init"][2])
    and not any(map(_has_record, _ARGUMENTS))
)
forward = _define_forward() if _is_function else None


def _name_of_its_own():
    """Return another name of this module, under which a compiler finds it, too.

    torch.compile looks a function's globals up by the name of its module, and another version of
    this package has the same one: in one graph, both were the first that it had seen.
    """
    names = (f"{_LIBRARY.ns}_{number}" for number in _itertools.count())
    name = next(name for name in names if name not in _sys.modules)
    _sys.modules[name] = _sys.modules[__name__]
    return name


__name__ = _name_of_its_own()
