"""The fitted model's error, compared with the original's own error against float64."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from actors.adopt.check.logit_rows import LogitRows, RowAgreement
from actors.adopt.check.memory_peak import free_bytes
from actors.adopt.model.model_file import Batch, ModelFile
from actors.adopt.model.model_state import KeptState
from actors.adopt.model.step_results import StepResult, later_calls, step_results
from actors.adopt.stage.errors import AdoptError, first_line
from actors.adopt.tasks.task_proof import difference

TRUTH_RUNS = 3  # of all batches: twice as they are, once in float64
OWN_ERRORS = 2.0  # the fitted model may have this many times the original's own error
ROUNDINGS = 16.0  # units of rounding that are never an error: an original may be exact by chance
OTHER_COMPUTATION = 0.5  # a float64 run that is further away has drawn other numbers


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """The largest errors over all batches, relative to each output's largest value."""

    against: str  # "float64" or "the original"
    original: float  # the original's own error, or its difference from itself
    fitted: float
    allowed: float
    places: tuple[str, ...] = ()  # outputs beyond what is allowed
    unequal: float = 0.0  # the largest part of whole numbers, such as tokens, that differ
    rows: RowAgreement | None = None  # None: no output is made of rows such as logits
    gradient_cosine: float | None = None  # the smallest of all parameters; None without gradients

    @property
    def is_right(self) -> bool:
        """Whether all outputs are within what is allowed."""
        return not self.places


class Truth:
    """What the results of a model should be, and how far the original is from it."""

    def __init__(
        self,
        file: ModelFile,
        model: torch.nn.Module,
        batches: Sequence[Batch],
        state: KeptState | None = None,
    ) -> None:
        """Run the original twice, and once in float64 where that is possible.

        `state`: the values that every step begins with; needed where steps change the model.
        """
        self._file, self._model, self._batches = file, model, batches
        self._state = state or KeptState(model)
        self.problem = ""
        self.original = self.results()
        self._again = self.results()
        self._exact = self._in_float64()

    def results(self) -> list[StepResult]:
        """Return what the steps of the model give as it is now."""
        return step_results(self._file, self._model, self._batches, self._state)

    def accuracy(self, fitted: Sequence[StepResult]) -> Accuracy:
        """Compare the fitted model's results."""
        compared = _Comparison(is_exact=self._exact is not None)
        references = self._exact or self._again
        for number, original in enumerate(self.original):
            compared.add(number, original, fitted[number], references[number])
        return compared.result()

    def _in_float64(self) -> list[StepResult] | None:
        """Return the results of a copy in float64; note the reason where there are none."""
        tensors = [*self._model.parameters(), *self._model.buffers()]
        device = tensors[0].device if tensors else torch.device("cpu")
        if 16 * sum(each.numel() for each in tensors) > free_bytes(device):
            self.problem = "a copy in float64 does not fit into memory"
            return None
        try:
            exact = copy.deepcopy(self._model).double()
            found = step_results(
                self._file, exact, [_doubled(batch) for batch in self._batches], _settled(exact)
            )
        except AdoptError:
            raise
        except Exception as error:  # noqa: BLE001  # the user's model, in a dtype that it may refuse
            self.problem = first_line(error, 160)
            return None
        if [_shapes(each) for each in found] != [_shapes(each) for each in self.original]:
            self.problem = "its outputs have other shapes in float64"
        elif self._is_other_computation(found):
            self.problem = "its float64 run gives something else: random draws, or it diverges"
        return None if self.problem else found

    def _is_other_computation(self, exact: Sequence[StepResult]) -> bool:
        """Whether float64 results are unlike the original's, which repeats itself."""
        for one, again, other in zip(self.original, self._again, exact, strict=True):
            references, repeats = dict(other.places()), dict(again.places())
            for place, values in one.places():
                is_float = values.dtype.is_floating_point
                if is_float and _error(values, references[place]) > OTHER_COMPUTATION:
                    return _error(values, repeats[place]) < OTHER_COMPUTATION / 10
        return False


class _Difference(msgspec.Struct, frozen=True, kw_only=True):
    """How far one tensor of one batch is from what it should be, relative to its largest value."""

    place: str
    batch: int
    own: float  # the original's error
    fitted: float
    rounding: float  # what another order of operations may give anyway


class _Comparison:
    """The comparison of one fitted model with the original, place by place."""

    def __init__(self, *, is_exact: bool) -> None:
        self._is_exact = is_exact
        self._places: list[str] = []
        self._differences: list[_Difference] = []
        self._own: dict[str, float] = {}  # of single numbers, by place: the largest of any batch
        self._unequal: dict[str, float] = {}  # outputs of whole numbers: the part that differs
        self._has_floats = False  # a call of the model gave floating-point outputs
        self._later = self._later_seen = 0  # steps with several calls, and those compared
        self._squares: dict[str, list[float]] = {}  # by call: errors squared, own and fitted
        self._cosine: float | None = None
        self._rows = LogitRows(is_exact=is_exact)

    def add(
        self, number: int, original: StepResult, fitted: StepResult, reference: StepResult
    ) -> None:
        """Compare one step."""
        if len(fitted.outputs) != len(original.outputs):
            self._places.append(f"batch {number} has {len(fitted.outputs)} outputs")
            return
        others, references = dict(fitted.places()), dict(reference.places())
        chosen = [f"output {n}" for n in range(len(original.outputs))] if original.calls else []
        for place, values in original.places():
            if place not in others:
                self._places.append(f"{place} of batch {number} is missing")
                continue
            is_chosen = place in chosen
            self._compare(
                place, number, values, others[place], references[place], is_chosen=is_chosen
            )
        self._compare_calls(number, original, fitted, reference)
        for values, other, exact in zip(
            original.scores(), fitted.scores(), reference.scores(), strict=False
        ):
            self._rows.add(values, other, exact)
        for name, gradient in original.gradients.items():
            if name in fitted.gradients:
                found = _cosine(gradient, fitted.gradients[name])
                self._cosine = min(found, 1.0 if self._cosine is None else self._cosine)

    def _compare_calls(
        self, number: int, original: StepResult, fitted: StepResult, reference: StepResult
    ) -> None:
        """Compare what the model returned in later calls of a step, such as single tokens."""
        self._has_floats |= any(each.dtype.is_floating_point for each in original.first_call)
        self._later += len(original.calls) > 1
        seen = 0
        for one, other, exact in zip(
            original.first_call, fitted.first_call, reference.first_call, strict=False
        ):
            self._add_squares("first call", one, other, exact)
        for place, (one, other, exact) in later_calls((original, fitted, reference)):
            self._compare(place, number, one, other, exact)
            self._add_squares(place, one, other, exact)
            seen += 1
        self._later_seen += bool(seen)

    def result(self) -> Accuracy:
        """Return the largest errors.

        Whole numbers such as tokens are chosen by the largest of some floating-point numbers. Where
        these are as accurate as the original's on average, another number is a near-tie.
        """
        problem = self._rows.problem(OWN_ERRORS, ROUNDINGS)
        judged = [(0.0, 0.0, 0.0), *map(self._judged, self._differences)]
        share, own, error = max(judged)  # the largest share of what is allowed
        if not self._are_near_ties():
            self._places += [
                f"{place}: {part:.2g} of its whole numbers differ"
                for place, part in self._unequal.items()
            ]
        return Accuracy(
            against="float64" if self._is_exact else "the original",
            original=own,
            fitted=error,
            allowed=error / share if share else 0.0,
            places=(*self._places, *([problem] if problem else [])),
            unequal=max(self._unequal.values(), default=0.0),
            rows=self._rows.agreement(),
            gradient_cosine=self._cosine,
        )

    def _are_near_ties(self) -> bool:
        """Whether what tokens were chosen from is as accurate as the original's, on average."""
        if not self._is_exact or not self._has_floats or (self._later and not self._later_seen):
            return False
        return all(
            fitted**0.5 <= max(OWN_ERRORS * own**0.5, floor)
            for own, fitted, floor in self._squares.values()
        )

    def _add_squares(
        self, place: str, original: torch.Tensor, fitted: torch.Tensor, exact: torch.Tensor
    ) -> None:
        """Keep the largest mean square of the errors of one call's output over all steps."""
        size = float(exact.double().abs().max()) if exact.numel() else 0.0
        if not original.dtype.is_floating_point or not size or fitted.shape != exact.shape:
            return
        own, found = (
            float(((each.double() - exact.double()) / size).square().mean())
            for each in (original, fitted)
        )
        before = self._squares.get(place, [0.0, 0.0, 0.0])
        floor = float(torch.finfo(original.dtype).eps)
        self._squares[place] = [max(before[0], own), max(before[1], found), floor]

    def _compare(
        self,
        place: str,
        number: int,
        original: torch.Tensor,
        fitted: torch.Tensor,
        reference: torch.Tensor,
        *,
        is_chosen: bool = False,
    ) -> None:
        """Compare one tensor of batch `number`.

        With float64 an error is a distance from it, else one from the original's own values.
        `is_chosen`: a step chose it by what the model returned, if it is of whole numbers.
        """
        is_chosen &= not original.dtype.is_floating_point and fitted.dtype == original.dtype
        if is_chosen and fitted.shape == original.shape:
            part = _error(fitted, original)
            if part > max(OWN_ERRORS * _error(original, reference), 1e-9):
                self._unequal[f"{place} of batch {number}"] = part
            return
        own = _error(original, reference)
        error = _error(fitted, reference if self._is_exact else original)
        if fitted.dtype != original.dtype or fitted.shape != original.shape:
            error = float("inf")
        is_single = original.dtype.is_floating_point and original.numel() == 1
        if is_single and math.isfinite(own):
            self._own[place] = max(own, self._own.get(place, 0.0))
        self._differences.append(
            _Difference(
                place=place,
                batch=number,
                own=own,
                fitted=error,
                rounding=self._rounding(original.dtype),
            )
        )

    def _judged(self, one: _Difference) -> tuple[float, float, float]:
        """Return the share of what is allowed, the original's error, and the fitted model's.

        The original's error of a single number, such as a loss, is its largest in any batch: in one
        it is often small by chance.  The largest of many numbers is not, and one batch may have an
        error of its own, such as another choice of experts.
        """
        own = max(one.own, self._own.get(one.place, 0.0))
        allowed = max(OWN_ERRORS * own, one.rounding)
        if not one.fitted <= allowed:
            self._places.append(
                f"{one.place} of batch {one.batch}: {one.fitted:.2g} of its largest value, at most"
                f" {allowed:.2g} is allowed"
            )
        return one.fitted / allowed, own, one.fitted

    def _rounding(self, dtype: torch.dtype) -> float:
        """Return the error that another order of operations may have anyway."""
        if not dtype.is_floating_point:
            return 1e-9
        step = float(torch.finfo(dtype).eps)
        return ROUNDINGS * step if self._is_exact else max(ROUNDINGS * step, step**0.5)


def step_outputs(
    file: ModelFile, model: torch.nn.Module, batches: Sequence[Batch]
) -> list[StepResult]:
    """Return what the steps give, for a model that they do not change."""
    return step_results(file, model, batches, KeptState(model))


def _settled(model: torch.nn.Module) -> KeptState:
    """Return the state of a copy, which is as it was made before every step."""
    state = KeptState(model)
    state.keep()
    return state


def _error(values: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the largest difference relative to the largest value; of integers the part unequal."""
    if values.shape != exact.shape:
        return float("inf")
    if not exact.dtype.is_floating_point:
        return float((values != exact).double().mean()) if values.numel() else 0.0
    return difference(values.double(), exact.double())


def _cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the cosine of two gradients; 1 for two that are zero."""
    one, other = one.double().flatten(), other.double().flatten()
    sizes = float(one.norm() * other.norm())
    if not sizes:
        return 1.0 if torch.equal(one, other) else 0.0
    return float(one @ other) / sizes


def _doubled(batch: Batch) -> Batch:
    """Return a batch with its floating-point tensors in float64."""

    def doubled(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.double() if value.dtype.is_floating_point else value
        if isinstance(value, dict):
            return {key: doubled(item) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(doubled(item) for item in value)
        return value

    return doubled(batch[0]), doubled(batch[1])


def _shapes(result: StepResult) -> dict[str, torch.Size]:
    # Not in order: under autocast gradients come in another one than in float64.
    return {place: tensor.shape for place, tensor in result.places()}
