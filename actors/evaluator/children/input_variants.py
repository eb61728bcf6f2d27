"""Varies a task's inputs and parameters, so that a candidate can't rely on one distribution.

A task's `get_inputs` draws from one distribution, and its parameters are often zeros and ones.  A
candidate that is right only there is wrong.  Each kind of draw keeps the meaning of inputs: masks,
indices, probabilities, triangular and sorted tensors are not changed.  The referee tries whether
the task works on the others (finite outputs, no large error) before they are used.  Pure functions
on tensors.
"""

from __future__ import annotations

import math

import torch

from actors.evaluator.children import recurrent_memory
from actors.evaluator.children.tensors import records
from actors.evaluator.children.tensors.value_kinds import is_constant, is_free
from actors.evaluator.ipc.orders import InputKind

PERTURBATION = 0.2  # parameters move by this share
SMALL_CONSTANT = 0.01  # LayerScale begins at 1e-4 or 1e-6: a residual branch counts for nothing
CHANGES = ("remembers", "scales_buffers", "grows")  # that `perturb` leaves out, in this order
SLICES = 64  # of a dimension that has so many, one in so many is ...
CONTRAST = 8  # ... so many times as large: squares of it weigh as much as all others
# Of each element, from one or minus one: tens of thousands of them have a product that is neither
# zero nor infinite.
NEAR_ONE = 0.01
NOISE_SEED = 0x5851F42D4C957F2D


def vary(inputs: object, kind: InputKind, seed: int) -> object:
    """Return `inputs` (nested tensors) with other values wherever values may be varied."""
    if isinstance(inputs, torch.Tensor):
        return _as_strided_like(inputs, _tensor(inputs, kind, seed)) if is_free(inputs) else inputs
    if records.record_kind(inputs) is not None:
        fields = enumerate(records.field_values(inputs))
        return records.like(inputs, [vary(each, kind, seed + number) for number, each in fields])
    if isinstance(inputs, dict):
        return {key: vary(item, kind, seed + n) for n, (key, item) in enumerate(inputs.items())}
    if isinstance(inputs, list | tuple):
        items = [vary(item, kind, seed + number) for number, item in enumerate(inputs)]
        return items if isinstance(inputs, list) else tuple(items)
    return inputs


def _as_strided_like(x: torch.Tensor, varied: torch.Tensor) -> torch.Tensor:
    """Return `varied` in the strides of `x`: a candidate may rely on those that the task draws."""
    if varied.stride() == x.stride() or 0 in x.stride():  # elements of an expanded one share memory
        return varied
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(varied)


def _tensor(x: torch.Tensor, kind: InputKind, seed: int) -> torch.Tensor:
    """Return one tensor, varied by `kind`."""
    generator = _noise_generator(seed, x.device)
    random = torch.rand(4, generator=_noise_generator(seed)).tolist()
    unit = bool((x.min() >= 0) & (x.max() <= 1))

    def noise() -> torch.Tensor:
        return torch.rand(x.shape, generator=generator, device=x.device, dtype=torch.float32)

    match kind:
        case "scaled":
            factor = 0.25 + 0.5 * random[0] if unit or random[1] < 0.5 else 1.5 + 2.5 * random[0]
            return torch.mul(x, factor)
        case "shifted":
            offset = -x.mean() if unit else x.std()
            return torch.add(x, offset * (1 + random[0]))
        case "sparse":
            return torch.where(noise() < 0.9, torch.zeros_like(x), x)
        case "uneven":
            return _uneven(x, generator, largest=1 if unit else CONTRAST)
        case "blocks":
            rows = max(1, x.shape[0] // 4)
            return torch.cat([x[:rows], x[:1].expand_as(x[rows:])])
        case "spikes" | "large" | "missing":
            # Few of many elements: a part of a tensor says nothing of the rest.
            share = 8 / x.numel() if random[1] < 0.5 else max(0.001, 8 / x.numel())
            return torch.where(noise() < share, _outliers(x, kind, unit=unit), x)
        case "near one":
            size = 1 + NEAR_ONE * (2 * noise() - 1)
            return torch.where(x < 0, -size, size).to(x.dtype)
        case "permuted":
            return x.flip(0).roll(int(random[0] * x.shape[-1]), -1)
        case _:
            return x


def _outliers(x: torch.Tensor, kind: InputKind, *, unit: bool) -> torch.Tensor:
    """Return what a few elements of `x` become."""
    if kind == "missing":
        return torch.full_like(x, torch.nan)
    if kind == "large":
        # The exponential of these overflows: what a softmax subtracts first does nothing on others.
        wide = torch.float64 if x.dtype is torch.float64 else torch.float32
        return x + math.log(torch.finfo(wide).max) * x.sign()
    return x.max() if unit else 8 * x


def _uneven(x: torch.Tensor, generator: torch.Generator, *, largest: int) -> torch.Tensor:
    """Return `x` with a few slices of each long dimension that weigh as much as all others.

    A mean over many elements is, as a rule, that of any part of them: here it is not.  No element
    is made zero: eager's rounding shows in each.
    """
    is_large = torch.zeros((), dtype=torch.bool, device=x.device)
    for dimension, size in enumerate(x.shape):
        if size >= min(SLICES, max(x.shape)):
            chosen = torch.randperm(size, generator=generator, device=x.device)
            shape = [size if each == dimension else 1 for each in range(x.dim())]
            is_large = is_large | (chosen < max(1, size // SLICES)).view(shape)
    return torch.where(is_large, largest * x.abs(), x * (largest / CONTRAST))


def _noise_generator(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Return the generator of noise for values that were drawn with `seed`.

    Noise from that very sequence would follow them, and move the mean of zero-mean weights by a
    tenth of their deviation.
    """
    return torch.Generator(device=device).manual_seed(seed ^ NOISE_SEED)


def perturb(
    model: torch.nn.Module,
    seed: int,
    *,
    grows: bool = True,
    remembers: bool = True,
    scales_buffers: bool = True,
) -> dict[str, torch.Tensor]:
    """Return the module's state with slightly different parameters and running statistics.

    `grows`: constants near zero become as large as others.  `remembers`: half of the units of
    recurrent modules keep their state.  `scales_buffers`: buffers that are one number everywhere,
    as a scale of ones; zeros are mostly a state, or a mask.
    """
    generators: dict[torch.device, torch.Generator] = {}  # a card draws noise faster than a host
    parameters = dict(model.named_parameters(remove_duplicate=False))
    state = {}
    for name, value in model.state_dict().items():
        moves = name in parameters or name.endswith(("running_mean", "running_var"))
        moves = moves or (scales_buffers and _is_scale(value))
        if value.device not in generators:
            generators[value.device] = _noise_generator(seed, value.device)
        generator = generators[value.device]
        held = value.detach()
        state[name] = _perturbed(held, generator, grows=grows) if moves else held.clone()
    if remembers:
        recurrent_memory.remember(model, state, seed)
    return state


def _is_scale(buffer: torch.Tensor) -> bool:
    """Whether a buffer has several elements that are one number other than zero."""
    return buffer.numel() > 1 and is_constant(buffer) and bool(buffer.reshape(-1)[0] != 0)


def _perturbed(value: torch.Tensor, generator: torch.Generator, *, grows: bool) -> torch.Tensor:
    if not value.is_floating_point():
        return value.clone()
    noise = torch.rand(value.shape, generator=generator, device=value.device) * 2 - 1
    noise = noise.to(value.dtype)
    if not bool(value.any()):  # a tensor of zeros gets random values
        return PERTURBATION * noise
    # Signs stay, so that positive values stay positive; a divisor stays away from zero.
    if grows and is_constant(value) and bool(value.abs().max() < SMALL_CONSTANT):
        return value.sign() * PERTURBATION * (0.25 + 0.75 * noise.abs())
    return value * (1 + PERTURBATION * noise)
