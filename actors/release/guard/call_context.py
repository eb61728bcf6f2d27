"""What around a call the kernels can't take: modes of torch, transformations, other defaults."""

# mypy: ignore-errors
from __future__ import annotations

import torch as _torch

from actors.release.guard.call_modes import _mode_misfit
from actors.release.guard.judged_values import _DEVICE, _JUDGED

# --- copied from here on ---

# A task's file may change the default dtype when it is imported; the kernels were judged with it.
_DEFAULT_DTYPE = _torch.get_default_dtype() if "default dtype" in _JUDGED else _torch.float32


def _context_misfit():
    """Return what around a call the kernels can't take; "" for nothing."""
    if _torch._C._functorch.peek_interpreter_stack() is not None:
        return "a transformation of torch.func is active"
    return _mode_misfit(_DEVICE, _DEFAULT_DTYPE)
