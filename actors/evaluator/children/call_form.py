"""Makes a module callable as `module(*inputs)`, whatever its dtype and its call are.

The referee and the runner of either side use it, so both sides are called alike and the code that
times calls knows one form only.
"""

from __future__ import annotations

import torch

from actors.evaluator.ipc.orders import CallForm


def adapted(module: object, form: CallForm, device: str) -> object:
    """Return what is called in the place of `module`, on its device and in its dtype."""
    if isinstance(module, torch.nn.Module):
        module = module.to(device)
        if form.dtype:
            module = module.to(getattr(torch, form.dtype))
    return module
