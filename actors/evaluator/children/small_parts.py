"""Parts of an output whose error the rest of it would hide, compared by a scale of their own.

An error is relative to the element plus the tensor's root mean square.  In a tensor of coordinates
up to 1e5 beside scores up to one, anything would be right for the scores; so would an input for the
output of a residual block that adds little to it, and 300 for temperatures of 300.01.  All are
compared once more: the indices of a dimension that are far smaller than the tensor, and the
difference to an input, or to the mean over a dimension.  Rests of rounding are no parts: eager
itself must be near float64 there, or, without float64, to what a sum is rounded to.

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
MOST_LOST = 0.1  # of a part's scale, by eight errors like eager's: else it is a rest of rounding
ROUNDINGS = 4  # of a sum, in eager's and in others
MOST_SCALE = 2.0  # times the root mean square of the real parts: no tensor's scale is larger
# Elements: one of many outputs is small by chance, what lies behind one index together is not.
LEAST_ELEMENTS = 16
FIRST_ELEMENTS = 1024  # of an input: if they are not the output's, it is none of a residual block


def compare(
    got: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor | None,
    where: str,
    *,
    floor: float = 0.0,
    inputs: Sequence[torch.Tensor | None] = (),
    others: Sequence[torch.Tensor] = (),
    leeway: float = 1.0,
) -> Comparison:
    """Compare as `correctness.compare` does, then parts; `inputs`: what the call was given."""
    found = correctness.compare(got, eager, exact, where, floor=floor, others=others, leeway=leeway)
    if found.reason or not correctness.is_real(eager) or eager.numel() < LEAST_ELEMENTS:
        return found
    least = max(floor, math.sqrt(correctness.floor_of(eager)))
    small = iter(()) if exact is None else _small_indices(got, eager, exact, where)
    added = _differences(got, eager, exact, where, inputs)
    parts = chain(((part, 0.0) for part in small), ((part, floor) for part in added))
    for (name, own, ours, truth), allowed in parts:
        if exact is None:
            lost = _rounded_away(eager, truth)
        else:
            lost = correctness.ERROR_FACTOR * correctness.relative_loss(ours, truth)
        if allowed:  # of the sum, by the user: in bfloat16 it loses what is added
            size = correctness.scale_of(eager if exact is None else exact)
            lost = max(
                lost, allowed * size / max(correctness.scale_of(truth), correctness.MIN_SCALE)
            )
        if lost > MOST_LOST:
            continue
        within = correctness.compare(own, ours, truth, name, floor=max(least, lost))
        if within.reason:
            return within
        found = replace(found, max_error=max(found.max_error, within.max_error))
    return found


def compare_change(
    got: torch.Tensor,
    eager: torch.Tensor,
    before: torch.Tensor,
    where: str,
    *,
    floor: float,
    calls: int = 1,
) -> Comparison:
    """Compare what calls have added to a tensor that held `before`.

    A step of an optimiser is 1e-4 of a parameter: one that is not made would be right.  Each call
    rounds, and the same way: `1 - 0.99999` in float32 is 0.1 % more than 1e-5.
    """
    if not correctness.is_real(eager) or eager.is_complex():
        return Comparison()
    changed = eager.double() - before.double()
    size = correctness.scale_of(changed)
    allowed = floor * correctness.scale_of(eager) / max(size, correctness.MIN_SCALE)
    lost = max(calls * _rounded_away(eager, changed), allowed)
    if not lost <= MOST_LOST:  # NaN, too
        return Comparison()
    least = max(lost, math.sqrt(correctness.floor_of(eager)))
    named = f"{where} (what it adds)"
    return correctness.compare(got.double() - before.double(), changed, None, named, floor=least)


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
    size: float | None = (
        None  # of the tensor; it takes as long as a comparison, and is rarely needed
    )
    own, ours, truth = map(_real, (got, eager, exact))
    for dimension in range(truth.dim()):
        others = tuple(each for each in range(truth.dim()) if each != dimension)
        count = truth.numel() / truth.shape[dimension]
        if truth.shape[dimension] < 2 or count < LEAST_ELEMENTS:
            continue
        sizes = torch.linalg.vector_norm(truth, dim=others) / count**0.5
        is_ordinary = sizes >= correctness.LEAST_ORDINARY
        most = MOST_SCALE * sizes.square().mean().sqrt()
        if not bool((is_ordinary & ~(sizes > least * most)).any()):
            continue
        if size is None:
            size = correctness.scale_of(exact, correctness.fill_ratio(eager))
        is_small = is_ordinary & (sizes <= least * size)
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
    inputs: Sequence[torch.Tensor | None],
) -> Iterator[Part]:
    """Yield what an output adds to something that would itself be right as the output."""
    truth = eager if exact is None else exact
    for name, base in chain(_inputs_like(eager, inputs), _means(eager, truth)):
        if correctness.compare(base.to(eager.dtype), eager, exact, "").reason:
            continue
        less = base.double()
        if not bool((truth == less).all()):
            named = f"{where} (less {name}, to which it adds little)"
            yield named, got.double() - less, eager.double() - less, truth.double() - less


Base = tuple[str, torch.Tensor]  # name, values


def _inputs_like(eager: torch.Tensor, inputs: Sequence[torch.Tensor | None]) -> Iterator[Base]:
    """Yield inputs that have as many elements as the output, of which the first are alike."""
    first = eager.reshape(-1)[:FIRST_ELEMENTS]
    for number, each in enumerate(inputs):
        if each is None or each.dtype != eager.dtype or each.is_complex():
            continue
        if each.numel() != eager.numel():
            continue
        if not correctness.compare(each.reshape(-1)[:FIRST_ELEMENTS], first, None, "").reason:
            yield f"input {number}", each.reshape(eager.shape)


def _means(eager: torch.Tensor, truth: torch.Tensor) -> Iterator[Base]:
    """Yield the mean over the first and the last dimension, if two indices of it are alike."""
    most = 4 * correctness.floor_of(eager)  # both are off from the mean, with scales of their own
    for dimension in sorted({0, eager.dim() - 1}) if not eager.is_complex() else ():
        if eager.shape[dimension] < 2:
            continue
        first, other = (eager.select(dimension, index) for index in (0, 1))
        if not correctness.compare(other, first, None, "", floor=most).reason:
            mean = truth.double().mean(dimension, keepdim=True)
            yield f"its mean over dimension {dimension}", mean.expand(eager.shape)
