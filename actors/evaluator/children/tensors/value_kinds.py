"""What the values of a tensor look like: drawn numbers, or a mask, places, a constant."""

from __future__ import annotations

import torch

MAX_ELEMENTS_INSPECTED = 4096  # these decide what a tensor means
FEW_VALUES = 3


def is_free(x: torch.Tensor) -> bool:
    """Whether the elements look independent: no mask, index, probability or structure."""
    if not x.is_floating_point() or x.dim() == 0 or x.numel() < 16:
        return False
    sample = x.detach().reshape(-1)[:MAX_ELEMENTS_INSPECTED].float()
    if not bool(sample.isfinite().all()) or torch.unique(sample).numel() <= FEW_VALUES:
        return False
    if bool((sample[1:] >= sample[:-1]).all()) or float((sample == 0).float().mean()) > 0.3:
        return False
    sums = x.detach().reshape(-1, x.shape[-1])[:64].float().sum(-1)
    if bool((x.min() >= 0) & ((sums - sums[0]).abs() < 1e-3).all()) and x.shape[-1] > 1:
        return False
    return not _is_structured(x)


def _is_structured(x: torch.Tensor) -> bool:
    """Whether a square matrix is symmetric, triangular or diagonal."""
    if x.dim() < 2 or x.shape[-1] != x.shape[-2]:
        return False
    first = x.detach().reshape(-1, x.shape[-2], x.shape[-1])[0]
    below, above = first.tril(-1), first.triu(1)
    return bool((below == above.mT).all()) or not bool(below.any()) or not bool(above.any())


def is_constant(value: torch.Tensor) -> bool:
    """Whether all elements are equal, like the zeros and ones that most modules begin with."""
    return not value.numel() or bool((value == value.reshape(-1)[0]).all())
