"""Whether a winner's tensors agree with the plain module's.

The tolerance is wide, because the referee, a process without candidate code, has judged the outputs
against float64 before.  Outputs that are only what rounding leaves of larger numbers (a mean of
normalised values) agree where the winner is as near to float64 as the module is.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import torch

from actors.evaluator.children.tensors.tensor_bytes import tensors_in

TOLERANCES = {torch.float16: 3e-2, torch.bfloat16: 1e-1}  # of an output's largest element
DEFAULT_TOLERANCE = 2e-3
OWN_ERRORS = 8.0  # a winner's error may be so many times the module's own, as where it is judged


class ReleaseCheckError(Exception):
    """The winner is wrong in one use; the message describes it in one line."""


class UntestableUseError(Exception):
    """This use can't be tried here; the message has the reason in one line."""


def require_same(
    got: object,
    expected: object,
    where: str = "",
    exact: Callable[[], object] = lambda: None,
) -> None:
    """Raise `ReleaseCheckError` unless two values hold tensors that agree.

    `exact` returns the same tensors in float64, or None: where a tensor differs, its error decides.
    """
    ours, theirs = list(tensors_in(got)), list(tensors_in(expected))
    if len(ours) != len(theirs):
        raise ReleaseCheckError(f"{where}{len(ours)} tensors, expected {len(theirs)}")
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            raise ReleaseCheckError(
                f"{where}{one.dtype}{list(one.shape)}, expected {other.dtype}{list(other.shape)}"
            )
        if not other.numel():
            continue
        left, right = (each.detach().to(torch.float64) for each in (one, other))
        finite = right.isfinite()
        if not torch.equal(left.isfinite(), finite):
            raise ReleaseCheckError(f"{where}other elements are finite than expected")
        largest = float(right[finite].abs().max()) if bool(finite.any()) else 0.0
        error = float((left[finite] - right[finite]).abs().max()) if bool(finite.any()) else 0.0
        if error > TOLERANCES.get(other.dtype, DEFAULT_TOLERANCE) * max(largest, 1e-30):
            true = next(islice(tensors_in(exact()), number, None), None)
            if true is None or not _is_as_exact(left, right, true):
                raise ReleaseCheckError(f"{where}off by {error:.3g}, the largest is {largest:.3g}")


def _is_as_exact(ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether values are as near to float64 as the module's own, within a factor."""
    if exact.shape != ours.shape:
        return False
    own, error = (float((each - exact.detach()).abs().max()) for each in (theirs, ours))
    return error <= OWN_ERRORS * own
