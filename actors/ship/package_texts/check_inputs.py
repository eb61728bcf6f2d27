"""Inputs and parameters of other kinds for the checks, and gradients."""

# mypy: ignore-errors
from __future__ import annotations

import copy
import time

import torch

from .comparison import NotCheckableError, copies
from .judged_calls import change, tensors_of


def operator_of(subject):
    if subject.part.forward is None:
        raise NotCheckableError("there is no operator for the inputs and outputs of this module")
    return subject.part.forward


def require_cuda(subject):
    if subject.device != "cuda":
        raise NotCheckableError("it needs a CUDA device")


def seconds_of(function, calls=50):
    """Return the median seconds of a call; launches only, where kernels run on a card."""
    function()
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return sorted(times)[calls // 2]


def resized(tensor, size):
    """Return a tensor with another size of its first dimension."""
    if not tensor.dim():
        return tensor
    if size <= tensor.shape[0]:
        return tensor[:size].clone()
    return torch.cat([tensor] * (size // max(1, tensor.shape[0]) + 1))[:size].clone()


def permuted(tensor):
    """Return equal values whose memory is in another order."""
    if tensor.dim() < 2:
        return tensor
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def sliced(tensor):
    """Return equal values as every second element of a larger tensor."""
    if not tensor.dim():
        return tensor
    return torch.stack([tensor, tensor], dim=-1)[..., 0]


def misaligned(tensor):
    """Return equal values, contiguous, one element after an aligned address."""
    room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
    return room[1:].view(tensor.shape).copy_(tensor)


def perturbed(module):
    """Give parameters other values, in place, and return the module."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                parameter.mul_(0.9)
    return module


def gradients(module, inputs):
    """Return the gradients of the inputs and of the parameters, [] where there are none."""
    return differentiate(*differentiable(module, inputs))


def exact_gradients(module, inputs, numbers=None):
    """Return the gradients in float64, or None where the module does not run so."""
    doubled = change(inputs, lambda t: t.double() if t.is_floating_point() else t)
    try:
        return differentiate(*differentiable(copy.deepcopy(module).double(), doubled, numbers))
    except Exception:
        return None


def differentiable(module, inputs, numbers=None):
    """Call a module with gradients; return outputs, and the tensors whose gradients count.

    `numbers`: the inputs' tensors that require one; None: all that can.
    """
    inputs = copies(inputs)
    for number, tensor in enumerate(tensors_of(inputs)):
        wanted = tensor.is_floating_point() if numbers is None else number in numbers
        tensor.requires_grad_(wanted)
    torch.manual_seed(0)
    outputs = [t for t in tensors_of(module(*inputs)) if t.is_floating_point()]
    wanted = [t for t in tensors_of(inputs) if t.requires_grad]
    return outputs, wanted + [p for p in module.parameters() if p.requires_grad]


def drawn(tensor):
    """Return normal numbers of a tensor's shape, the same ones at every call."""
    generator = torch.Generator(device=tensor.device).manual_seed(0)
    return torch.randn(tensor.shape, generator=generator, device=tensor.device)


def differentiate(outputs, wanted):
    """Return gradients of `wanted` for drawn gradients of the outputs.

    Drawn ones do not depend on the outputs: their errors are not those of a derivative.
    """
    outputs = [t for t in outputs if t.requires_grad]
    if not outputs or not wanted:
        return []
    loss = sum((t.float() * drawn(t)).mean() for t in outputs)
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [torch.zeros_like(w) if g is None else g for w, g in zip(wanted, found)]
