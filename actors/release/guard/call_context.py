"""What around a call the kernels can't take: modes of torch, transformations, other defaults."""

# mypy: ignore-errors
from __future__ import annotations

import torch as _torch

from actors.release.guard.judged_values import _DEVICE, _JUDGED

# --- copied from here on ---

# A task's file may change the default dtype when it is imported; the kernels were judged with it.
_DEFAULT_DTYPE = _torch.get_default_dtype() if "default dtype" in _JUDGED else _torch.float32


def _context_misfit(tensors, ties):
    """Return what around a call the kernels can't take; "" for nothing."""
    if _torch._C._functorch.peek_interpreter_stack() is not None:
        held = [tensor for tensor in tensors if isinstance(tensor, _torch.Tensor)]
        held += [tie[0][tie[1]] for tie in ties]
        if any(map(_torch._C._functorch.is_batchedtensor, held)):
            raise RuntimeError("ModelNew does not support torch.vmap: use the plain class Model")
        return "a transformation of torch.func is active"
    if _torch._C._get_tracing_state() is not None:
        return "torch.jit.trace records plain operations"
    if _torch._C._len_torch_dispatch_stack():
        return "a dispatch mode is active"
    if _torch.is_autocast_enabled(_DEVICE):
        return "autocast is on"
    if _torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode derivatives are wanted"
    if _torch.get_default_dtype() is not _DEFAULT_DTYPE:
        return f"the default dtype is {_torch.get_default_dtype()}, judged was {_DEFAULT_DTYPE}"
    if _torch._C._get_deterministic_algorithms():
        return "deterministic algorithms are demanded, which the kernels were not judged for"
    return _torch._C._len_torch_function_stack() and _function_mode_misfit()


def _function_mode_misfit():
    """Return which function mode the kernels can't take: all but a default device of their own."""
    for mode in _torch.overrides._get_current_function_mode_stack():
        if type(mode).__name__ != "DeviceContext":
            return f"a function mode is active ({type(mode).__name__})"
        device = mode.device
        current = _torch.cuda.current_device() if _DEVICE == "cuda" else 0
        if device.type != _DEVICE or device.index not in (None, current):
            return f"the default device is {device}, the kernels were judged on {_DEVICE}"
    return ""
