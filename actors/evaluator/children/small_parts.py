"""Parts of an output whose error the rest of it would hide, compared by a scale of their own.

An error is relative to the element plus the tensor's root mean square.  In a tensor of coordinates
up to 1e5 beside scores up to one, anything would be right for the scores; so would an input for the
output of a residual block that adds little to it.  Both are compared once more: the indices of a
dimension that are far smaller than the tensor, and the difference to an input.  Rests of rounding
are no parts: eager itself must not be far off from float64, or, where there is none, from what the
sum with the input is rounded to.

Parts are compared roughly (the square root of the floor: 1 % in float32), so that they are computed
at all: a covariance by sums of squares loses more in small variances beside large ones than eager.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain

import torch
from msgspec.structs import replace

from actors.evaluator.children import correctness
from actors.evaluator.children.correctness import Comparison

HIDDEN_SHARE = 0.1  # of a part's scale: by so much the tensor's tolerance lets all of it be off
ROUNDINGS = 4  # of a sum, in eager's and in others
FIRST_ELEMENTS = 1024  # of an input: if they are not the output's, it is none of a residual block


def compare(
    got: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor | None,
    where: str,
    *,
    floor: float = 0.0,
    inputs: Sequence[torch.Tensor] = (),
) -> Comparison:
    """Compare as `correctness.compare` does, then parts; `inputs`: those of the call, unchanged."""
    found = correctness.compare(got, eager, exact, where, floor=floor)
    is_real = eager.is_floating_point() or eager.is_complex()
    if found.reason or not is_real or not eager.numel():
        return found
    least = max(floor, math.sqrt(correctness.floor_of(eager)))
    small = iter(()) if exact is None else _small_indices(got, eager, exact, where)
    for name, own, ours, truth in chain(small, _differences(got, eager, exact, where, inputs)):
        if exact is None:
            lost = _rounded_away(eager, truth)
        else:
            lost = correctness.ERROR_FACTOR * correctness.relative_loss(ours, truth)
        if lost > correctness.MOST_ALLOWED:
            continue
        within = correctness.compare(own, ours, truth, name, floor=max(least, lost))
        if within.reason:
            return within
        found = replace(found, max_error=max(found.max_error, within.max_error))
    return found


def _rounded_away(sums: torch.Tensor, added: torch.Tensor) -> float:
    """Return what rounding sums takes of what was added, relative to its scale."""
    lost = ROUNDINGS * torch.finfo(sums.dtype).eps / 2 * sums.abs().max().item()
    return lost / max(correctness.scale_of(added), correctness.MIN_SCALE)


Part = tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]  # name, got, eager, truth


def _small_indices(
    got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, where: str
) -> Iterator[Part]:
    """Yield for each dimension the indices whose values are ordinary numbers, and far smaller.

    Real and imaginary parts are a dimension as well.
    """
    least = correctness.floor_of(eager) / HIDDEN_SHARE
    size = correctness.scale_of(exact, correctness.fill_ratio(eager))
    own, ours, truth = map(_real, (got, eager, exact))
    for dimension in range(truth.dim()):
        others = tuple(each for each in range(truth.dim()) if each != dimension)
        if truth.shape[dimension] < 2:
            continue
        count = truth.numel() / truth.shape[dimension]
        norms = torch.linalg.vector_norm(truth, dim=others) if others else truth.abs()
        sizes = norms / count**0.5
        is_small = (sizes >= correctness.LEAST_ORDINARY) & (sizes <= least * size)
        if bool(is_small.any()):
            chosen = is_small.nonzero().reshape(-1)
            named = f"{where} ({_named(chosen.tolist())} of dimension {dimension} alone)"
            of_part = [each.index_select(dimension, chosen) for each in (own, ours, truth)]
            yield named, of_part[0], of_part[1], of_part[2]


def _named(indices: list[int]) -> str:
    if len(indices) == 1:
        return f"index {indices[0]}"
    between = "to" if indices[-1] - indices[0] + 1 == len(indices) else "and others up to"
    return f"indices {indices[0]} {between} {indices[-1]}"


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _differences(
    got: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor | None,
    where: str,
    inputs: Sequence[torch.Tensor],
) -> Iterator[Part]:
    """Yield what the output adds to an input that would itself be right as the output."""
    truth = eager if exact is None else exact
    for number, each in enumerate(inputs):
        if each.dtype != eager.dtype or each.numel() != eager.numel() or each.is_complex():
            continue
        given = each.reshape(eager.shape)
        first = [one.reshape(-1)[:FIRST_ELEMENTS] for one in (given, eager, truth)]
        if correctness.compare(first[0], first[1], first[2], "").reason:
            continue
        if correctness.compare(given, eager, truth, "").reason or bool((truth == given).all()):
            continue
        base = given.double()
        name = f"{where} (less input {number}, to which it adds little)"
        yield name, got.double() - base, eager.double() - base, truth.double() - base
