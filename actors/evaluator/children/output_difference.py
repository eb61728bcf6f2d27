"""Describes a wrong output for the model that repairs it: where, how many, which pattern.

Pure functions on tensors; they run in the trusted referee.  An element is wrong by the rule of
`correctness.py`.  A pattern is named only where every wrong element is in it, and where that is no
accident.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from actors.evaluator.children.correctness import (
    Comparison,
    ErrorPiece,
    compare,
    expected_and_got,
    is_real,
    scaled_errors,
)

# The round of the check, the other outputs and the names of missing parameters come on top.
MAX_LINES = 10
SHOWN_ERRORS = 3
SHOWN_NAMES = 6  # of outputs
MAX_ELEMENTS = 1 << 30  # a larger output is not described: its map of wrong elements takes memory
MAX_VALUES = 1 << 20  # wrong values that are looked at
MAX_FLAT = 1 << 26  # elements of an output that is searched for a pattern in row-major order
MAX_REORDERED = 1 << 24  # elements of an output that is compared with its own transpose
PERIODS = (2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # of blocks, vectors and tiles
BLOCKS = (1024, 512, 256, 128, 64, 32, 16, 8, 4)
MIN_DENSITY = 0.5  # of wrong elements within a pattern
MIN_PATTERN = 4  # wrong elements, for a pattern among them
MAX_CHANCE = 1e-6  # of a pattern among elements that are wrong at random places
MAX_ROUNDING = 0.0079  # of an element: two roundings to bfloat16
CLOSE = 1e-3  # relative spread of a constant ratio or offset
MIN_DIVISOR = 0.1  # of the RMS: smaller right values give no ratio
SAME_ORDER = 0.95  # of the elements agree with another order of the right values


class ComparedOutput(NamedTuple):
    """One output of a call: the candidate's, eager's and that of float64, if it has one."""

    name: str
    got: torch.Tensor
    eager: torch.Tensor
    exact: torch.Tensor | None


class WrongElements:
    """The wrong elements of one output."""

    def __init__(
        self,
        got: torch.Tensor,
        eager: torch.Tensor,
        truth: torch.Tensor,
        rms: float,
        allowed: float,
    ) -> None:
        self.shape = tuple(got.shape)
        self.is_wrong = torch.zeros(got.numel(), dtype=torch.bool, device=got.device)
        self.unfinished = {"NaN": 0, "infinite": 0}  # where the right value is finite
        self.zeros = 0
        self.errors: list[tuple[float, int, str]] = []  # the largest: error, place, text
        kept_got, kept_truth, kept = [], [], 0
        for piece in scaled_errors(got, eager, truth, rms, allowed):
            bad = ~(piece.error <= 1.0)
            self.is_wrong[piece.begin : piece.begin + bad.numel()] = bad
            own, true = piece.got[bad], piece.truth[bad]
            finite = true.isfinite()
            self.unfinished["NaN"] += _count(own.isnan() & finite)
            self.unfinished["infinite"] += _count(own.isinf() & finite)
            self.zeros += _count(own == 0)
            both = own.isfinite() & finite
            if kept < MAX_VALUES:
                kept_got.append(own[both][: MAX_VALUES - kept])
                kept_truth.append(true[both][: MAX_VALUES - kept])
                kept += kept_got[-1].numel()
            self._add_errors(piece, bad, rms, allowed)
        self.count = _count(self.is_wrong)
        self.got, self.truth = torch.cat(kept_got), torch.cat(kept_truth)

    def _add_errors(self, piece: ErrorPiece, bad: torch.Tensor, rms: float, allowed: float) -> None:
        distance = (piece.got - piece.truth).abs().double()
        distance = torch.where(bad, distance.nan_to_num(nan=math.inf, posinf=math.inf), -1.0)
        for place in distance.topk(min(SHOWN_ERRORS, distance.numel())).indices.tolist():
            error = float(distance[place].item())
            if error < 0:
                break
            expected = piece.truth[place].item()
            text = expected_and_got(piece.truth, piece.got, place)
            if allowed and not math.isinf(error):
                tolerance = allowed * (abs(expected) + rms)
                own = abs(piece.eager[place].item() - expected)
                text += (
                    f": off by {error:.2g}, allowed {tolerance:.2g} (RMS {rms:.3g}), eager's own "
                    f"{own:.2g}"
                )
            self.errors.append((error, -(piece.begin + place), text))
        self.errors = heapq.nlargest(SHOWN_ERRORS, self.errors)


def difference_lines(
    got: torch.Tensor, eager: torch.Tensor, truth: torch.Tensor, rms: float, allowed: float
) -> tuple[str, ...]:
    """Return the description, at most `MAX_LINES` lines; () where nothing is wrong.

    `allowed` and `rms` are the tolerance of `correctness.Comparison`.
    """
    if not 0 < got.numel() <= MAX_ELEMENTS:
        return ()
    is_bool = got.dtype is torch.bool
    got, eager, truth = (_subtractable(each) for each in (got, eager, truth))
    wrong = WrongElements(got, eager, truth, rms, allowed)
    wrong.zeros = 0 if is_bool else wrong.zeros  # half of all wrong booleans are False
    if not wrong.count:
        return ()
    values = list(_values(wrong))
    lines = [_extent(wrong), *values, *_places(wrong)]
    if got.numel() <= MAX_REORDERED and wrong.count > 2 * (1 - SAME_ORDER) * got.numel():
        lines += _orders(got, eager, truth, rms, allowed)
        lines += [] if values or got.is_complex() else _by_index(got.double(), truth.double(), rms)
    lines = lines[: MAX_LINES - len(wrong.errors)]
    errors = [f"at {_index(-place, wrong.shape)}: {text}" for _, place, text in wrong.errors]
    return (*lines, *errors)


def describe_outputs(
    outputs: Sequence[ComparedOutput],
    wrong: int,
    found: Comparison,
    floor: float,
    leeway: float = 1.0,
) -> tuple[str, ...]:
    """Return which outputs are wrong, and the lines on the one with the number `wrong`.

    `found` is what `correctness.compare` found of it, with `floor` and `leeway`.  () if memory is
    short: a description must not keep the verdict from its way.
    """
    _, got, eager, exact = outputs[wrong]
    truth = eager if exact is None else exact
    try:
        others = _other_outputs(outputs, wrong, floor, leeway) if len(outputs) > 1 else ()
        return (*others, *difference_lines(got, eager, truth, found.rms, found.allowed))
    except RuntimeError:
        return ()


def _other_outputs(
    outputs: Sequence[ComparedOutput], wrong: int, floor: float, leeway: float
) -> Iterator[str]:
    """Yield which other outputs are wrong, too, and which are right."""
    named: dict[str, list[str]] = {"wrong, too": [], "right": []}
    for name, got, eager, exact in (*outputs[:wrong], *outputs[wrong + 1 :]):
        is_wrong = compare(got, eager, exact, name, floor=floor, leeway=leeway).reason
        named["wrong, too" if is_wrong else "right"].append(name)
    found = "; ".join(f"{what}: {_names(names)}" for what, names in named.items() if names)
    yield f"what follows is about {outputs[wrong].name}; {found}"


def _extent(wrong: WrongElements) -> str:
    bad, size = wrong.is_wrong, wrong.is_wrong.numel()
    if wrong.count == size:
        return "all elements are wrong" if size > 1 else "its only element is wrong"
    first = int(bad.to(torch.uint8).argmax().item())
    if wrong.count == 1:
        return f"1 of {size} elements is wrong, at {_index(first, wrong.shape)}"
    last = size - 1 - int(bad.flip(0).to(torch.uint8).argmax().item())
    return (
        f"{wrong.count} of {size} elements are wrong ({wrong.count / size:.2%}): the first at "
        f"{_index(first, wrong.shape)}, the last at {_index(last, wrong.shape)}"
    )


# --- values ---------------------------------------------------------------------------------------


def _values(wrong: WrongElements) -> Iterator[str]:
    """Yield what the wrong values have in common."""
    for name, unfinished in wrong.unfinished.items():
        if unfinished:
            yield f"{_share(unfinished, wrong.count)} of the wrong elements are {name}"
    if wrong.zeros >= max(MIN_PATTERN, MIN_DENSITY * wrong.count):
        number = _share(wrong.zeros, wrong.count)
        yield f"{number} of the wrong elements are exactly 0: not written, or cut off"
    elif wrong.got.numel() >= MIN_PATTERN and not wrong.got.is_complex():
        relation = _relation(wrong.got, wrong.truth)
        if relation:
            yield relation
        elif wrong.got.is_floating_point():
            yield from _rounding(wrong.got.double(), wrong.truth.double())


def _relation(got: torch.Tensor, truth: torch.Tensor) -> str:
    """Return what wrong values have to do with right ones; "" for nothing that is known."""
    got, truth = got.double(), truth.double()
    if bool((got == got[0]).all()):
        return f"all wrong elements have one value, {got[0].item():.7g}"
    large = truth.abs() > 1e-2 * truth.abs().mean()
    if _count(large) >= MIN_PATTERN and bool((truth != truth[0]).any()):
        ratio = (got[large] / truth[large]).median().item()
        close = min(CLOSE, 0.1 * abs(ratio - 1.0))  # a ratio near 1 must be exact to say anything
        wanted = ratio * truth[large]
        if ratio and bool(((got[large] - wanted).abs() <= close * wanted.abs()).all()):
            return f"each wrong element is {ratio:.6g} times the right one"
    offset = (got - truth).median().item()
    if offset and bool(((got - truth - offset).abs() <= CLOSE * abs(offset)).all()):
        sign = "plus" if offset > 0 else "minus"
        return f"each wrong element is the right one {sign} {abs(offset):.6g}"
    return ""


def _rounding(got: torch.Tensor, truth: torch.Tensor) -> Iterator[str]:
    """Yield the largest error as a share of its element, where it may be a format's rounding."""
    largest = ((got - truth).abs() / truth.abs()).max().item()
    if largest <= MAX_ROUNDING:
        yield (
            f"no wrong element is off by more than {largest:.2g} of itself: one rounding to "
            "float16 or TF32 is up to 0.00049, to bfloat16 0.0039"
        )


# --- places ---------------------------------------------------------------------------------------


def _places(wrong: WrongElements) -> Iterator[str]:
    """Yield a pattern of the wrong places: along dimensions, or along memory if that says more."""
    if not MIN_PATTERN <= wrong.count < wrong.is_wrong.numel():
        return
    bad, share = wrong.is_wrong.reshape(wrong.shape), 1.0
    for dimension, size in enumerate(wrong.shape):
        others = [other for other in range(bad.dim()) if other != dimension]
        text, covered = _pattern(bad.any(dim=others) if others else bad, wrong.count)
        if text:
            share *= covered
            name = f"dimension {dimension} (of {size})" if bad.dim() > 1 else "the output"
            yield f"wrong only at {text} of {name}"
    if bad.dim() > 1 and bad.numel() <= MAX_FLAT:
        text, covered = _pattern(wrong.is_wrong, wrong.count)
        if text and covered < 0.995 * share:
            yield f"in row-major order, wrong only at {text}"


def _pattern(wrong: torch.Tensor, count: int) -> tuple[str, float]:
    """Return a pattern of wrong indices and the share of all indices in it; "" for none.

    `count`: the wrong elements; the more there are, the less a pattern is an accident.
    """
    number, size = _count(wrong), wrong.numel()
    if not 0 < number < size:
        return "", 1.0
    text, share = _period(wrong)
    if not text:
        indices = wrong.nonzero().reshape(-1)
        first, last = int(indices[0].item()), int(indices[-1].item())
        span = last - first + 1
        is_dense = number >= max(min(span, MIN_PATTERN), MIN_DENSITY * span)
        text, share = (_range(first, last, size) if is_dense else ""), span / size
    return (text, share) if text and share**count <= MAX_CHANCE else ("", 1.0)


def _range(first: int, last: int, size: int) -> str:
    if first == last:
        return f"index {first}" + (", the last one" if first == size - 1 else "")
    if last < size - 1:
        return f"indices {first} to {last}" + (", from the beginning" if not first else "")
    block = next((each for each in BLOCKS if 0 < first == size - size % each < size), 0)
    tail = f" (the part after the last whole block of {block})" if block else ""
    return f"indices {first} to {last}, up to the end{tail}"


def _period(wrong: torch.Tensor) -> tuple[str, float]:
    """Return which indices of each block are wrong, for the period that says most, and their share.

    Of periods that say the same, the smallest counts.
    """
    size, best, text = wrong.numel(), 1.0, ""
    for period in (each for each in PERIODS if size >= 3 * each):
        whole = size - size % period
        blocks = wrong[:whole].reshape(-1, period)
        residues = blocks.any(dim=0)
        number = _count(residues)
        rest = wrong[whole:]
        if number / period >= best or bool((rest & ~residues[: rest.numel()]).any()):
            continue
        density = blocks[:, residues].double().mean().item()
        # Most blocks are concerned, else the place is a range and not a period.
        is_found = min(density, blocks.any(dim=1).double().mean().item()) >= MIN_DENSITY
        named = _residues(residues, period, number) if is_found else ""
        if named:
            text, best = named, number / period
    return text, best


def _residues(residues: torch.Tensor, period: int, number: int) -> str:
    """Return the name of neighbouring indices of a block; "" where they are not neighbours."""
    indices = residues.nonzero().reshape(-1)
    first, last = int(indices[0].item()), int(indices[-1].item())
    if number == 1:
        return f"every {period}{_ordinal(period)} index, from {first} on"
    if last - first + 1 != number:
        return ""
    where = "the tail" if last == period - 1 else "the head" if first == 0 else "the middle"
    return f"{where} of every block of {period}: {first} to {last} of each"


def _ordinal(number: int) -> str:
    return {2: "nd", 3: "rd"}.get(number, "th")


# --- the right values in another order ------------------------------------------------------------


def _orders(
    got: torch.Tensor, eager: torch.Tensor, truth: torch.Tensor, rms: float, allowed: float
) -> Iterator[str]:
    """Yield which other order of the right values the output has, if it has one."""
    if got.dim() >= 2 and min(got.shape[-2:]) > 1:
        others = [each.transpose(-1, -2).reshape(got.shape) for each in (eager, truth)]
        if _has_order(got, others, rms, allowed):
            yield "it looks transposed: the last two dimensions are stored in the other order"
            return
    for dimension, size in enumerate(got.shape):
        for step in (1, -1) if size > 2 else ():
            others = [each.roll(step, dimension) for each in (eager, truth)]
            if _has_order(got, others, rms, allowed):
                yield f"it looks shifted by {step} along dimension {dimension}"
                return


# --- one factor or summand for each index of a dimension ------------------------------------------


def _by_index(got: torch.Tensor, truth: torch.Tensor, rms: float) -> Iterator[str]:
    """Yield the dimension whose index alone decides what the right values became, if one does.

    So it is where a parameter is left out, or is used as it was at construction.
    """
    for dimension, size in enumerate(got.shape):
        if size < 2 or got.numel() < MIN_PATTERN * size:
            continue
        own, right = (each.movedim(dimension, 0).reshape(size, -1) for each in (got, truth))
        summands = (own - right).median(dim=1, keepdim=True).values
        if bool(((own - right - summands).abs() <= CLOSE * (own - right).abs().max()).all()):
            yield _decided("plus a summand", dimension, size, summands)
            return
        large = right.abs() > MIN_DIVISOR * rms
        factors = torch.where(large, own / right, math.nan).nanmedian(dim=1, keepdim=True).values
        wanted = factors.nan_to_num(1.0) * right
        is_close = (own - wanted).abs() <= CLOSE * (wanted.abs() + MIN_DIVISOR * rms)
        if bool(large.any()) and bool(is_close.all()):
            yield _decided("times a factor", dimension, size, factors)
            return


def _decided(what: str, dimension: int, size: int, values: torch.Tensor) -> str:
    known = values[~values.isnan()]
    return (
        f"each element is the right one {what} that only its index in dimension {dimension} (of "
        f"{size}) decides ({known.min().item():.3g} to {known.max().item():.3g}): as without a "
        "parameter, or with its values at construction"
    )


def _has_order(got: torch.Tensor, others: list[torch.Tensor], rms: float, allowed: float) -> bool:
    eager, truth = others
    pieces = scaled_errors(got, eager, truth, rms, allowed)
    right = sum(_count(piece.error <= 1.0) for piece in pieces)
    return right >= SAME_ORDER * got.numel()


def _subtractable(tensor: torch.Tensor) -> torch.Tensor:
    """Return integers and booleans as wide integers: small ones have no negative differences."""
    return tensor if is_real(tensor) else tensor.long()


# --- words ----------------------------------------------------------------------------------------


def _count(mask: torch.Tensor) -> int:
    return int(mask.sum().item())


def _names(names: list[str]) -> str:
    left = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {left} more" if left > 0 else "")


def _share(number: int, count: int) -> str:
    return "all" if number == count else str(number)


def _index(flat: int, shape: tuple[int, ...]) -> str:
    place = [int(part) for part in torch.unravel_index(torch.tensor(flat), shape)] if shape else []
    return str(place) if place else "the only element"
