"""Draws the inputs of one case: other shapes and dtypes, values like those of `get_inputs()`.

A tensor of another shape is drawn inside the values of the tensor that `get_inputs()` drew at its
place: numbers between its numbers, or some of its own elements where it has few or whole ones.  Its
dimensions are in memory as those of that tensor are.  Causal masks and counting tensors
(`torch.arange`) stay what they are.  Pure functions on tensors, after the caller's seed.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.children.tensors.tensor_copies import map_tensors
from protocol.cases import TaskCase

FEW_VALUES = 3
MAX_SORTED = 1 << 16  # elements that decide a distribution


class CaseInputsError(ValueError):
    """A case does not fit what `get_inputs()` returns: one line."""


def in_case(inputs: list[object], case: TaskCase, seed: int) -> list[object]:
    """Return `inputs` in the shapes and dtypes of a case; `seed` decides the values."""
    if not (case.shapes or case.dtypes or case.dtype):
        return inputs
    count = len(list(tensors_in(inputs)))
    for what, given in (("shapes", case.shapes), ("dtypes", case.dtypes)):
        if given and len(given) != count:
            raise CaseInputsError(
                f"get_inputs() returns {count} tensors, and the case has {len(given)} {what}"
            )
    torch.manual_seed(seed)
    shapes: Iterator[tuple[int, ...]] = iter(case.shapes)
    dtypes = iter(case.dtypes)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        shape = next(shapes, tuple(tensor.shape))
        is_same = shape == tuple(tensor.shape)
        drawn = tensor if is_same else in_order_of(tensor, drawn_like(tensor, shape))
        if case.dtypes:
            drawn = drawn.to(getattr(torch, next(dtypes)))
        elif case.dtype and drawn.is_floating_point():
            drawn = drawn.to(getattr(torch, case.dtype))
        return drawn.requires_grad_() if tensor.requires_grad else drawn

    return map_tensors(inputs, change)  # type: ignore[return-value]  # a list in, a list out


def in_order_of(tensor: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    """Return `drawn` with its dimensions in memory as those of a dense `tensor` are.

    A case of a model with channels last is called with channels last.
    """
    if tensor.dim() != drawn.dim() or tensor.is_contiguous():
        return drawn
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda dim: -strides[dim])
    if not tensor.permute(order).is_contiguous():
        return drawn
    back = [order.index(dim) for dim in range(len(order))]
    return drawn.permute(order).contiguous().permute(back)


def drawn_like(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return a tensor of another shape with values like those of `tensor`."""
    values = tensor.detach()
    if not values.numel():
        raise CaseInputsError("get_inputs() returns an empty tensor: there is nothing to draw from")
    if values.is_meta:  # a layout is asked for: there are no values, and all draws are contiguous
        return torch.empty(shape, dtype=values.dtype, device="meta")
    diagonal = _triangle(values)
    if diagonal is not None and len(shape) >= 2:
        below, above = values.reshape(-1, *values.shape[-2:])[0][[-1, 0], [0, -1]]
        mask = torch.ones(shape[-2:], dtype=torch.bool, device=values.device)
        mask = mask.tril(shape[-1] - shape[-2] + diagonal).expand(shape)
        return torch.where(mask, below, above)
    if _is_counting(values) and shape:
        first = values.reshape(-1)[0]
        row = first + torch.arange(shape[-1], device=values.device, dtype=values.dtype)
        return row.expand(shape).contiguous()
    flat = values.reshape(-1)
    if values.is_floating_point() and _is_continuous(flat):
        return _between(flat, shape)
    return flat[torch.randint(flat.numel(), shape, device=values.device)]


def _between(flat: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Draw from the distribution of `flat`: its elements in order, and the numbers between them."""
    step = -(-flat.numel() // MAX_SORTED)
    ordered = flat[::step].double().sort().values
    place = torch.rand(shape, device=flat.device, dtype=torch.float64) * (ordered.numel() - 1)
    low = place.floor().long()
    high = (low + 1).clamp(max=ordered.numel() - 1)
    return torch.lerp(ordered[low], ordered[high], place - low).to(flat.dtype)


def _is_continuous(flat: torch.Tensor) -> bool:
    sample = flat[:MAX_SORTED].float()
    return bool(sample.isfinite().all()) and torch.unique(sample).numel() > FEW_VALUES


def _triangle(values: torch.Tensor) -> int | None:
    """Return by how much the diagonal of a lower triangle is off the last one; None for others."""
    if values.dim() < 2 or min(values.shape[-2:]) < 2:
        return None
    rows, columns = values.shape[-2:]
    low, high = values.reshape(-1, rows, columns)[0][[-1, 0], [0, -1]]
    if bool(low == high):
        return None
    kept = values == low
    offset = int(kept.reshape(-1, rows, columns)[0, 0].sum()) - 1
    whole = torch.ones(rows, columns, dtype=torch.bool, device=values.device).tril(offset)
    same = bool((kept == whole).all()) and bool((values[~kept] == high).all())
    return offset - (columns - rows) if same else None


def _is_counting(values: torch.Tensor) -> bool:
    """Whether each row of the last dimension counts up by one from the same number."""
    if values.dtype == torch.bool or not values.dim() or values.shape[-1] < 2:
        return False
    row = values.reshape(-1)[0] + torch.arange(values.shape[-1], device=values.device)
    return bool((values == row).all())
