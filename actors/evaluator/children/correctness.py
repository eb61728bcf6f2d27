"""Decides whether two outputs are equal.  Pure functions on tensors; runs in the trusted referee.

A result is compared with the reference in float64 where there is one.  The error that eager PyTorch
itself makes in the task's own precision is measured, and a candidate's error may be `ERROR_FACTOR`
times as large; KernelBench's figures (1e-4 for float32, 1e-2 for halves) are the floor.  Both are
relative to the element's magnitude plus the tensor's own root mean square, so that zeros do not
pass for an output of tiny numbers.  What a mask fills in does not count there (`scale_of`).
Integers and booleans must be equal exactly, where eager's are those of float64.

Where a function jumps (a fraction, a choice of experts), eager loses all of some elements, and
times that error anything would be right.  So no more than `MOST_ALLOWED` is; beyond that, up to
`ERROR_FACTOR` times eager's largest error, may be as many elements as so many errors like eager's
lose together.  Below it, too: an element that is ill-conditioned widens the tolerance of no others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from msgspec.structs import replace

from actors.evaluator.children.error_levels import crowded_level, times_as_many
from protocol.values import Value

ERROR_FACTOR = 8.0
MOST_ALLOWED = 0.25  # a quarter of the element and the tensor's root mean square
# Times the tolerance of float32 and float64 on draws of other kinds than the task's own.  They show
# what is computed otherwise; how exactly, the task's own draws show.  In others a few slices are
# five times as large as the root mean square, and so is what a product of split operands loses.
# An exponential makes all of a large product's error, and not a part, an error of the output.
OTHER_KINDS_LEEWAY, LARGE_LEEWAY = 4.0, 32.0
ELEMENTS_AT_ONCE = 1 << 24  # elements in one piece of a large tensor
FLOORS = {
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 1e-2,
}
# The errors that `--precision` allows in float32 results: those of such arithmetic in long sums.
PRECISIONS = {"tf32": 4e-3, "float16": 1e-2, "bfloat16": 4e-2}
SMALL_FLOAT_FLOOR = 0.125  # the eight-bit floats
MIN_SCALE = 1e-30  # for a reference that is all zeros
LEAST_FILL = 1e4  # a mask fills in -1e4, -1e9 or the lowest number, in place of -inf
LEAST_ORDINARY = 1e-2  # or what is less, and stands beside such numbers: no rest of rounding
# Of a fill to the largest other element, at least: there the tolerance would be a part of the
# latter that no honest result is off by, for a floor of 1e-4 and of 1e-2.
FILL_RATIO, COARSE_FILL_RATIO = 1e3, 30.0


class Comparison(Value, frozen=True, kw_only=True):
    """The outcome of one comparison."""

    reason: str = ""  # "" when they agree
    max_error: float = 0.0  # in units of the tolerance
    # Of an output that is wrong: the tolerance is `allowed` times (the element plus `rms`).
    rms: float = 0.0
    allowed: float = 0.0
    wrong: int = 0  # elements


def compare(
    got: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor | None,
    where: str,
    *,
    floor: float = 0.0,
    others: Sequence[torch.Tensor] = (),
    leeway: float = 1.0,
) -> Comparison:
    """Compare `got` with the reference; shapes and dtypes must be equal.

    `eager` is the reference's output in the task's precision, `exact` the one in float64; `floor`
    is the error that the user allows; `others`: eager's for inputs that are rounded otherwise, by
    which its error is measured, too; `leeway`: times the tolerance.  It is compared in pieces.
    """
    if not got.numel():
        return Comparison()
    truth = eager if exact is None else exact
    if not is_real(eager):
        return compare_integers(got, eager, exact, where, others=others)
    leeway = leeway_of(eager, leeway)
    size, usual = least_tolerance(truth, eager, floor)
    least = max(usual, min(leeway * usual, MOST_ALLOWED))
    off = _quick_comparison(got, truth, size)
    if off <= least:  # eager's own error is not needed, and nothing is infinite or NaN
        return Comparison(max_error=off / least)
    samples = (eager, *others)
    own_loss = leeway * ERROR_FACTOR * max(relative_loss(each, truth) for each in samples)
    excused = 0
    if own_loss > MOST_ALLOWED:
        excused = _excused_elements(eager, truth, size)
        # Not all: where other last digits decide everything, zeros would be right.
        most = max((_excused_elements(each, truth, size) for each in others), default=0)
        excused = max(excused, min(most, int(MOST_ALLOWED * eager.numel())))
    allowed = max(least, min(own_loss, MOST_ALLOWED))
    found = _thorough_comparison(got, eager, truth, where, size, allowed)
    if found.wrong > excused or found.max_error * allowed > own_loss:
        return found
    crowded = _crowded_level(got, samples, truth, size, least, leeway)
    if crowded < math.inf:
        return _thorough_comparison(got, eager, truth, where, size, crowded)
    return Comparison(max_error=min(found.max_error, 1.0))


def _crowded_level(
    got: torch.Tensor,
    samples: Sequence[torch.Tensor],
    truth: torch.Tensor,
    size: float,
    least: float,
    leeway: float,
) -> float:
    """Return the relative error beyond which more elements are than may be, or infinity.

    Beyond `MOST_ALLOWED` elements have been counted.
    """

    def errors(tensor: torch.Tensor, unit: float) -> Iterator[torch.Tensor]:
        pieces = scaled_errors(tensor, samples[0], truth, size, unit)
        return (each.error for each in pieces)

    eager = [errors(each, least / (leeway * ERROR_FACTOR)) for each in samples]
    octave = crowded_level(errors(got, least), eager, got.numel(), ERROR_FACTOR)
    level = math.inf if octave is None else least * 2.0**octave
    return level if level < MOST_ALLOWED else math.inf


def compare_integers(
    got: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor | None,
    where: str,
    *,
    lost: tuple[float, float] = (0.0, 0.0),
    others: Sequence[torch.Tensor] = (),
) -> Comparison:
    """Compare integers exactly: with eager's, or with those that follow from float64.

    Where eager itself rounds to another one than float64, some of what is right does, too, at other
    elements: as many as so many errors like eager's lose, none further off, and only some of all.
    `lost`: the share that eager loses, and the largest difference, as other draws have shown;
    `others`: as in `compare`.
    """
    truth = eager if exact is None or exact.shape != eager.shape else exact
    found = _thorough_comparison(got, eager, truth, where, 0.0, 0.0)
    if not found.wrong:
        return found
    samples = (eager, *others)
    share = max(lost[0], *((each != truth).double().mean().item() for each in samples))
    furthest = max(lost[1], *(furthest_apart(each, truth) for each in samples))
    excused = max(times_as_many(share, eager.numel(), ERROR_FACTOR), math.ceil(share))
    is_few = found.wrong <= min(excused, MOST_ALLOWED * eager.numel())
    is_near = is_few and furthest_apart(got, truth) <= ERROR_FACTOR * furthest
    return Comparison(max_error=1.0) if is_near else found


def furthest_apart(ours: torch.Tensor, truth: torch.Tensor) -> float:
    """Return the largest difference of two tensors of integers."""
    pieces = _pieces(ours, truth)
    return max(
        (mine.double() - true.double()).abs().max().item() for _begin, (mine, true) in pieces
    )


def _excused_elements(eager: torch.Tensor, truth: torch.Tensor, size: float) -> int:
    """Return how many elements `ERROR_FACTOR` errors like eager's lose together."""
    pieces = scaled_errors(eager, eager, truth, size, MOST_ALLOWED / ERROR_FACTOR)
    lost = sum(int((each.error > 1.0).sum().item()) for each in pieces)
    return times_as_many(lost / eager.numel(), eager.numel(), ERROR_FACTOR)


def leeway_of(tensor: torch.Tensor, leeway: float) -> float:
    """Return a leeway for a tensor's dtype: in halves eager's own errors are large already."""
    return leeway if floor_of(tensor) <= FLOORS[torch.float32] else min(leeway, 1.0)


def floor_of(tensor: torch.Tensor) -> float:
    """Return the relative error that always passes in a tensor's dtype."""
    return FLOORS.get(tensor.dtype, SMALL_FLOAT_FLOOR)


def least_tolerance(truth: torch.Tensor, eager: torch.Tensor, floor: float) -> tuple[float, float]:
    """Return the scale that is added to each element, and the relative error that always passes."""
    return scale_of(truth, fill_ratio(eager)), max(floor, floor_of(eager))


def fill_ratio(eager: torch.Tensor) -> float:
    """Return how much larger than the rest of an output a fill is, by the task's precision."""
    return COARSE_FILL_RATIO if floor_of(eager) > FLOORS[torch.float32] else FILL_RATIO


def _quick_comparison(got: torch.Tensor, truth: torch.Tensor, size: float) -> float:
    """Return the largest relative error; NaN where something is not finite."""
    worst = 0.0
    for _begin, (own, true) in _pieces(got, truth):
        scale = true.abs().add_(size + MIN_SCALE)
        here = (own - true).abs().div_(scale).max().item()  # of complex ones, too
        if not here <= worst:  # NaN stays NaN
            worst = here
    return worst


def _thorough_comparison(
    got: torch.Tensor,
    eager: torch.Tensor,
    truth: torch.Tensor,
    where: str,
    size: float,
    allowed: float,
) -> Comparison:
    """Compare element by element."""
    worst, count, first = 0.0, 0, -1
    for piece in scaled_errors(got, eager, truth, size, allowed):
        bad = ~(piece.error <= 1.0)
        here = int(bad.sum().item())
        if here and first < 0:
            first = piece.begin + int(bad.to(torch.uint8).argmax().item())
        count += here
        worst = max(
            worst, torch.nan_to_num(piece.error, nan=math.inf, posinf=math.inf).max().item()
        )
    if not count:
        return Comparison(max_error=worst)
    found = _report(got, truth, worst, count, first, where)
    return replace(found, rms=size, allowed=allowed, wrong=count)


class ErrorPiece(NamedTuple):
    """A piece of a comparison, flat, beginning at element `begin`."""

    begin: int
    got: torch.Tensor
    eager: torch.Tensor
    truth: torch.Tensor
    error: torch.Tensor  # in units of the tolerance: up to 1 is right


def scaled_errors(
    got: torch.Tensor, eager: torch.Tensor, truth: torch.Tensor, size: float, allowed: float
) -> Iterator[ErrorPiece]:
    """Yield the error of each element in units of the tolerance, piece by piece.

    `size`: the root mean square of the truth; `allowed`: the relative error that is right.
    """
    for begin, (own, ours, true) in _pieces(got, eager, truth):
        if is_real(eager):
            error = _error(own, ours, true) / ((_finite(true.abs()) + size + MIN_SCALE) * allowed)
        else:
            error = torch.where((own == ours) | (own == true), 0.0, math.inf)
        yield ErrorPiece(begin, own, ours, true, error)


def relative_loss(ours: torch.Tensor, truth: torch.Tensor) -> float:
    """Return the largest error of `ours`, relative to element and tensor."""
    if not ours.numel() or not is_real(ours):
        return 0.0
    truth = within_range(truth, ours)
    size = scale_of(truth, fill_ratio(ours))
    return max(
        (_finite((mine - true).abs()) / (_finite(true.abs()) + size + MIN_SCALE)).max().item()
        for _begin, (mine, true) in _pieces(ours, truth)
    )


def floor_beside_eager(eager: torch.Tensor, truth: torch.Tensor) -> float:
    """Return the relative error that passes where eager itself is compared with.

    Eager is off by its own error, and what is right by `ERROR_FACTOR` times that, up to what TF32
    is off by: bfloat16 is not right because TF32 is.  An exact result passes whatever eager loses.
    """
    loss = relative_loss(eager, truth)
    most = max(PRECISIONS["tf32"], 2 * loss)
    return min((1 + ERROR_FACTOR) * loss, most, MOST_ALLOWED)


def kernelbench_error(got: torch.Tensor, eager: torch.Tensor) -> float:
    """Return the largest error in units of KernelBench's tolerance, absolute plus relative."""
    if not got.numel() or not is_real(eager):
        return 0.0
    floor = floor_of(eager)
    return max(
        float((_finite((own - ours).abs()) / (floor * (1 + _finite(ours.abs())))).max().item())
        for _begin, (own, ours) in _pieces(got, eager)
    )


def is_real(tensor: torch.Tensor) -> bool:
    """Whether its elements are floating (or complex): integers are compared exactly."""
    return tensor.is_floating_point() or tensor.is_complex()


def _pieces(*tensors: torch.Tensor) -> Iterator[tuple[int, list[torch.Tensor]]]:
    """Yield pieces of tensors of one shape, widened; whole float64 copies would not fit."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    for begin in range(0, flat[0].numel(), ELEMENTS_AT_ONCE):
        yield begin, [_widened(tensor[begin : begin + ELEMENTS_AT_ONCE]) for tensor in flat]


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    # float32 resolves errors of 1e-4; in arithmetic with float64 torch widens it itself.
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    if tensor.dtype in (torch.float16, torch.bfloat16) or tensor.element_size() == 1:
        return tensor.double() if tensor.is_floating_point() else tensor
    return tensor


def scale_of(truth: torch.Tensor, ratio: float = FILL_RATIO) -> float:
    """Return the root mean square of a tensor's finite elements, without what a mask fills in.

    -1e9 in place of -inf would make anything right in the other elements.  It counts as such where
    all others are far smaller, by `ratio`, and where it is huge or these are ordinary numbers:
    saturated probabilities have ones beside 1e-20, which a kernel may round to zero.
    """
    largest = _largest(truth, math.inf)
    if largest < LEAST_ORDINARY * ratio:
        return _root_mean_square(truth, math.inf, 1.0)
    rest = _largest(truth, largest / 2)
    is_fill = largest >= LEAST_FILL or rest >= LEAST_ORDINARY
    if is_fill and 0.0 < rest * ratio <= largest:
        return _root_mean_square(truth, largest / 2, rest)
    return _root_mean_square(truth, math.inf, largest)


def _largest(tensor: torch.Tensor, limit: float) -> float:
    """Return the largest magnitude below `limit`; 0 where there is none."""
    most = 0.0
    for _begin, (piece,) in _pieces(tensor):
        sizes = _finite(piece.abs())
        most = max(most, torch.where(sizes < limit, sizes, 0.0).max().item())
    return most


def _root_mean_square(tensor: torch.Tensor, limit: float, unit: float) -> float:
    """Return it of the finite elements below `limit`; `unit`: by which squares stay finite."""
    total, count = 0.0, 0
    for _begin, (piece,) in _pieces(tensor):
        sizes = _finite(piece.abs())
        counted = sizes < limit
        total += (torch.where(counted, sizes, 0.0) / unit).square().sum().item()
        count += int(counted.sum().item())
    return unit * math.sqrt(total / count)


def within_range(exact: torch.Tensor, eager: torch.Tensor) -> torch.Tensor:
    """Return the truth as far as the task's precision can hold it.

    `torch.finfo(x.dtype).min` is another number in float64.
    """
    if not eager.is_floating_point() or not exact.is_floating_point():
        return exact
    most = torch.finfo(eager.dtype).max
    if _largest(exact, math.inf) <= most:
        return exact
    return torch.where(exact.isfinite(), exact.clamp(-most, most), exact)


def _finite(values: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def _error(own: torch.Tensor, ours: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Return the distance to the truth; inf where one is finite and the other is not."""
    error = (own - truth).abs()
    same = (own == truth) | (own.isnan() & truth.isnan())
    # Where eager overflows in its precision, the same overflow counts as right.
    overflows = ~ours.isfinite()
    same |= overflows & ((own == ours) | (own.isnan() & ours.isnan()))
    error = torch.where(error.isfinite(), error, math.inf)
    return torch.where(same, 0.0, error)


def _report(
    got: torch.Tensor, truth: torch.Tensor, worst: float, count: int, flat: int, where: str
) -> Comparison:
    place = [int(part) for part in torch.unravel_index(torch.tensor(flat), got.shape)]
    times = "" if math.isinf(worst) else f", the worst {worst:.3g} times the tolerance"
    return Comparison(
        reason=(
            f"{where}{place if place else ''}: {expected_and_got(truth, got, flat)}; "
            f"{count} of {got.numel()} elements differ{times}"
        ),
        max_error=worst,
    )


def expected_and_got(truth: torch.Tensor, got: torch.Tensor, flat: int) -> str:
    """Return both values of one element, with as many digits as tell them apart."""
    values = [tensor.reshape(-1)[flat].item() for tensor in (truth, got)]
    for digits in (7, 17):
        texts = [f"{each:.{digits}g}" if isinstance(each, float) else str(each) for each in values]
        if texts[0] != texts[1]:
            break
    return f"expected {texts[0]}, got {texts[1]}"
