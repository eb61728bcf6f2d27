"""Properties that many elements of a tensor have together, which a mix of two draws may lose."""

from __future__ import annotations

import torch

ROWS_INSPECTED, MAX_INSPECTED = 256, 1 << 24
TOLERANCE, HALF_TOLERANCE = 1e-5, 1e-3  # of a sum, for float32 and for half precision


def properties_of(x: torch.Tensor) -> set[str]:
    """Return the properties that many elements of a tensor have together."""
    length = x.shape[-1] if x.dim() else 0
    if length < 2 or length > MAX_INSPECTED or x.is_complex():
        return set()
    rows = x.reshape(-1, length)[: min(ROWS_INSPECTED, MAX_INSPECTED // length)].double()
    found = set()
    if bool((rows[:, 1:] >= rows[:, :-1]).all()):
        found.add("sorted")
    tolerance = HALF_TOLERANCE if x.element_size() < torch.float32.itemsize else TOLERANCE
    for name, sums in (("sum", rows.sum(-1)), ("norm", rows.square().sum(-1))):
        if len(sums) == 1:
            found.add(f"{name} {sums[0].item():.5g}")
        elif bool(((sums - sums[0]).abs() <= tolerance * sums[0].abs()).all()):
            found.add(f"equal {name}")
    if not x.is_floating_point():
        ranked = rows.sort(-1).values
        if bool((ranked[:, 1:] != ranked[:, :-1]).all()):
            found.add("distinct")
    if x.dim() >= 2 and x.shape[-2] == length and bool((x == x.mT).all()):
        found.add("symmetric")
    return found
