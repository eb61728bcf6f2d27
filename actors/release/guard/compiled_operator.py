"""The operator that torch.compile sees in place of the kernels."""

# mypy: ignore-errors
from __future__ import annotations

import itertools as _itertools

import torch as _torch
from torch.nn import Module as Model

from actors.release.guard.call_guard import _case_misfit, _inputs_misfit, _run
from actors.release.guard.carried_state import _CHANGED_BY_CALLS, _KEEPS_STATE
from actors.release.guard.judged_values import (
    _CASES,
    _DEVICE,
    _GRADIENTS,
    _INPUTS,
    _JUDGED,
    _LIMITS,
    _has_record,
    _leaf_specs,
    _modules,
    _nest,
    _tensors_of,
    _warn_once,
)

# --- copied from here on ---

# --- under torch.compile: one operator that the compiler does not look into ---


def _fresh(outputs, tensors):
    """Return outputs as contiguous tensors that share no memory with `tensors` or each other."""
    held = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    fresh = []
    for output in outputs:
        output = output.detach().contiguous()
        if output.untyped_storage().data_ptr() in held:
            output = output.clone()
        held.add(output.untyped_storage().data_ptr())
        fresh.append(output)
    return fresh


def _operator(handle, inputs, state, case=0):
    """Run one module on flat inputs; return flat, contiguous outputs of their own memory."""
    module = _modules[handle]
    flat = iter(inputs)
    args = [_nest(spec, flat) for spec in _INPUTS[case]]
    with _torch.no_grad():
        if all(map(_is_same_tensor, state, _state_of(module))):
            outputs = _tensors_of(_run(module, args))
        else:
            outputs = _tensors_of(_run_with(module, state, args))
    return _fresh(outputs, (*inputs, *state))


def _state_of(module):
    """Return the tensors that a graph gives to the operator besides the inputs."""
    return [*module.parameters(), *module.buffers()]


def _is_same_tensor(one, other):
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape


def _run_with(module, state, args):
    """Call the plain forward with other tensors than the module's own.

    A compiler does so where a graph changes parameters before the call, or replaces them.
    """
    guard = module._kernel_guard
    names = [name for name, _ in (*module.named_parameters(), *module.named_buffers())]
    off, guard.off = guard.off, "the compiled graph has other parameters than the module"
    try:
        return _torch.func.functional_call(module, dict(zip(names, state)), tuple(args))
    finally:
        guard.off = off


def _fake_operator(handle, inputs, state, case=0):
    """Return what `_operator` returns, without values."""
    specs = _leaf_specs(_CASES[case]["outputs"])
    held = [*inputs, *state]
    device = held[0].device if held else _torch.device(_DEVICE)
    return [_torch.empty(spec[2], dtype=spec[1], device=device) for spec in specs]


def _define_operator():
    """Register the operator under a name of this file's own; return it and what keeps it alive."""
    space = _torch.library.Library(f"stark_{_JUDGED['hash']}", "FRAGMENT")
    name = next(
        n for n in _itertools.count() if not hasattr(getattr(_torch.ops, space.ns), f"f{n}")
    )
    space.define(f"f{name}(int handle, Tensor[] inputs, Tensor[] state, int case=0) -> Tensor[]")
    space.impl(f"f{name}", _operator, "CompositeExplicitAutograd")
    _torch.library.register_fake(f"{space.ns}::f{name}", _fake_operator, lib=space)
    return getattr(getattr(_torch.ops, space.ns), f"f{name}").default, space


def _has_records():
    """Whether the module takes or returns a dataclass or a named tuple."""
    return any(_has_record(each[key]) for each in _CASES for key in ("inputs", "outputs"))


def _traceable_misfit(module, args, kwargs):
    """Return why a compiler must see the plain forward; "" when it may see the operator."""
    if module._kernel_guard.off:
        return module._kernel_guard.off
    if "compile" in _LIMITS:
        return "its kernels were not right under torch.compile"
    if _KEEPS_STATE:
        return f"each call changes its attribute {_CHANGED_BY_CALLS[1][0]}"
    guard = module._kernel_guard
    if kwargs:
        return "it is called with keywords"
    if _has_records():
        return "it takes or returns a dataclass or a named tuple"
    if _inputs_misfit(args, guard.made):  # its text may have a symbolic size
        return "its inputs have other shapes, dtypes or strides than the judged ones"
    if _torch.is_autocast_enabled(_DEVICE):
        return "autocast is on"
    state = _state_of(module)
    if _torch.is_grad_enabled():
        for tensor in (*_tensors_of(list(args)), *state):
            if tensor.requires_grad:
                return _GRADIENTS
    for part in module.modules():
        # A norm that keeps no statistics has buffers that are None.
        if part.training and any(each is not None for each in part._buffers.values()):
            return "it may change its buffers in training (after eval() the kernels run)"
    return ""


def _note_traced(reason):
    """Say, while a graph is traced, that it holds the plain forward."""
    _warn_once(f"{reason} (while torch.compile traced it)")
    return True


# What `torch.compiler.assume_constant_result` sets.  That function imports torch._dynamo, which
# takes as long as torch itself; only a compiler needs it, and has it by then.
_note_traced._dynamo_marked_constant = True


def _is_exporting():
    """Whether torch.export records; torch 2.11 takes its own function for True in torch.compile."""
    return _torch.compiler.is_exporting()


_is_exporting._dynamo_marked_constant = True


def _traced(module, args, kwargs):
    """What a compiler sees: the operator, or the plain forward."""
    if not _is_exporting():
        reason = _traceable_misfit(module, args, kwargs)
        if not reason:
            inputs = _tensors_of(list(args))
            state = _state_of(module)
            guard = module._kernel_guard
            case = next(n for n in guard.made if not _case_misfit(args, _INPUTS[n]))
            outputs = _OPERATOR(guard.handle, inputs, state, case)
            return _nest(_CASES[case]["outputs"], iter(outputs))
        _note_traced(reason)
    return Model.forward(module, *args, **kwargs)


_OPERATOR, _LIBRARY = _define_operator()
