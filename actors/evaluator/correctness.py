"""What counts as equal.  Pure functions on tensors; runs in the referee, which is trusted.

A result is judged against the reference in float64 where there is one.  What eager PyTorch itself
loses in the task's own precision is measured, and a candidate may lose `SLACK` times as much;
KernelBench's figures (1e-4 for float32, 1e-2 for halves) are the floor.  Both are relative to the
element's magnitude plus the tensor's own root mean square, so that an output of tiny numbers is not
passed by zeros.  Integers and booleans are exact.
"""

from __future__ import annotations

import math

import torch

from protocol.values import Value

SLACK = 8.0
FLOORS = {
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 1e-2,
}
# What `--precision` allows of results that are float32: what such arithmetic loses in long sums.
PRECISIONS = {"tf32": 4e-3, "float16": 1e-2, "bfloat16": 4e-2}
SMALL_FLOAT_FLOOR = 0.125  # the eight-bit floats
TINY = 1e-30  # a reference of nothing but zeros


class Finding(Value, frozen=True, kw_only=True):
    """The outcome of one comparison."""

    reason: str = ""  # "" when they agree
    max_error: float = 0.0  # in units of the tolerance


def compare(
    got: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor | None,
    where: str,
    *,
    floor: float = 0.0,
) -> Finding:
    """Compare `got` with the reference; shapes and dtypes are already known to be equal.

    `eager` is the reference's output in the task's precision, `exact` the one in float64; `floor`
    is what a user allows besides.
    """
    if not got.numel():
        return Finding()
    if not (eager.is_floating_point() or eager.is_complex()):
        error = torch.where(got == eager, 0.0, math.inf)
        return _report(got, eager, error, where)
    wide = torch.complex128 if eager.is_complex() else torch.float64
    own, ours = got.to(wide), eager.to(wide)
    truth = ours if exact is None else exact.to(wide)
    allowed = max(floor, FLOORS.get(eager.dtype, SMALL_FLOAT_FLOOR), SLACK * lost(ours, truth))
    error = _error(own, ours, truth) / (_scale(truth) * allowed)
    return _report(got, truth, error, where)


def lost(ours: torch.Tensor, truth: torch.Tensor) -> float:
    """Return the share that `ours` is off at worst, relative to element and tensor."""
    if not ours.numel() or not (ours.is_floating_point() or ours.is_complex()):
        return 0.0
    wide = torch.complex128 if ours.is_complex() else torch.float64
    ours, truth = ours.to(wide), truth.to(wide)
    return (_finite((ours - truth).abs()) / _scale(truth)).max().item()


def _scale(truth: torch.Tensor) -> torch.Tensor:
    magnitude = _finite(truth.abs())
    return magnitude + magnitude.square().mean().sqrt() + TINY


def kernelbench(got: torch.Tensor, eager: torch.Tensor) -> float:
    """Return the largest error in units of KernelBench's tolerance, absolute plus relative."""
    if not got.numel() or not (eager.is_floating_point() or eager.is_complex()):
        return 0.0
    wide = torch.complex128 if eager.is_complex() else torch.float64
    own, ours = got.to(wide), eager.to(wide)
    allowed = FLOORS.get(eager.dtype, SMALL_FLOAT_FLOOR) * (1 + _finite(ours.abs()))
    return float((_finite((own - ours).abs()) / allowed).max().item())


def _finite(values: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def _error(own: torch.Tensor, ours: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Return the distance to the truth; inf where one is finite and the other is not."""
    error = (own - truth).abs()
    same = (own == truth) | (own.isnan() & truth.isnan())
    # Where eager overflows in its precision, doing the same is as good as being right.
    odd = ~ours.isfinite()
    same |= odd & ((own == ours) | (own.isnan() & ours.isnan()))
    error = torch.where(error.isfinite(), error, math.inf)
    return torch.where(same, 0.0, error)


def _report(got: torch.Tensor, truth: torch.Tensor, error: torch.Tensor, where: str) -> Finding:
    bad = ~(error <= 1.0)
    worst = torch.nan_to_num(error, nan=math.inf, posinf=math.inf).max().item()
    count = int(bad.sum().item())
    if not count:
        return Finding(max_error=worst)
    flat = int(bad.reshape(-1).to(torch.uint8).argmax().item())
    place = [int(part) for part in torch.unravel_index(torch.tensor(flat), got.shape)]
    times = "" if math.isinf(worst) else f", the worst {worst:.3g} times the tolerance"
    return Finding(
        reason=(
            f"{where}{place if place else ''}: expected {_number(truth, flat)}, "
            f"got {_number(got, flat)}; {count} of {got.numel()} elements differ{times}"
        ),
        max_error=worst,
    )


def _number(tensor: torch.Tensor, flat: int) -> str:
    value = tensor.reshape(-1)[flat].item()
    return f"{value:.7g}" if isinstance(value, float) else str(value)
