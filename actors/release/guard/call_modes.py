"""Which modes of torch around a call no kernel can take; also a file of the package `stark_fitted`.

A kernel works on memory: what a mode would have the original's operations do, it does not see.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch as _torch

# --- copied from here on ---


def _mode_misfit(device, dtype):
    """Return which mode a kernel of a device ("cpu", "cuda") can't take; "" for none.

    `dtype`: the default dtype that it was judged with.
    """
    if _torch._C._get_tracing_state() is not None:
        return "torch.jit.trace records plain operations"
    if _torch._C._len_torch_dispatch_stack():
        return "a dispatch mode is active"
    if _torch.is_autocast_enabled(device):
        return "autocast is on"
    if _torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode derivatives are wanted"
    if _torch.get_default_dtype() is not dtype:
        return f"the default dtype is {_torch.get_default_dtype()}, judged was {dtype}"
    if _torch._C._get_deterministic_algorithms():
        return "deterministic algorithms are demanded, which the kernels were not judged for"
    return _torch._C._len_torch_function_stack() and _function_mode_misfit(device)


def _function_mode_misfit(kind):
    """Return which function mode a kernel can't take: all but a default device of its own."""
    for mode in _torch.overrides._get_current_function_mode_stack():
        if type(mode).__name__ != "DeviceContext":
            return f"a function mode is active ({type(mode).__name__})"
        device = mode.device
        current = _torch.cuda.current_device() if kind == "cuda" else 0
        if device.type != kind or device.index not in (None, current):
            return f"the default device is {device}, the kernels were judged on {kind}"
    return ""
