"""The fitted model's error, compared with the original's own error against float64."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from actors.adopt.call_layouts import tensors_of
from actors.adopt.errors import first_line
from actors.adopt.model_file import Batch, ModelFile
from actors.adopt.task_proof import difference

OWN_ERRORS = 2.0  # the fitted model may have this many times the original's own error
ROUNDINGS = 16.0  # units of rounding that are never an error: an original may be exact by chance

Outputs = list[list[torch.Tensor]]  # of each batch


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """The largest errors over all batches, relative to each output's largest value."""

    against: str  # "float64" or "the original"
    original: float  # the original's own error, or its difference from itself
    fitted: float
    allowed: float
    places: tuple[str, ...] = ()  # outputs beyond what is allowed
    agreement: float | None = None  # the part of rows with the same largest element (logits)

    @property
    def is_right(self) -> bool:
        """Whether all outputs are within what is allowed."""
        return not self.places


class Truth:
    """What the outputs of a model should be, and how far the original is from it."""

    def __init__(self, file: ModelFile, model: torch.nn.Module, batches: Sequence[Batch]) -> None:
        """Run the original twice, and once in float64 where that is possible."""
        self.problem = ""
        self.original = step_outputs(file, model, batches)
        self._again = step_outputs(file, model, batches)
        self._exact: Outputs | None = None
        try:
            self._exact = step_outputs(
                file, copy.deepcopy(model).double(), [_doubled(batch) for batch in batches]
            )
        except Exception as error:  # noqa: BLE001  # the user's model, in a dtype that it may refuse
            self.problem = first_line(error, 160)
        if self._exact is not None and not _match(self._exact, self.original):
            self._exact, self.problem = None, "its outputs have other shapes in float64"

    def accuracy(self, fitted: Outputs) -> Accuracy:
        """Compare the fitted model's outputs."""
        places, worst = [], (0.0, 0.0, 0.0)
        for number, outputs in enumerate(self.original):
            if len(fitted[number]) != len(outputs):
                places.append(f"batch {number} has {len(fitted[number])} outputs")
                continue
            for place, original in enumerate(outputs):
                other = fitted[number][place]
                own, error, allowed = self._errors(number, place, original, other)
                worst = max(worst, (error / allowed, own, error))
                if not error <= allowed:
                    places.append(
                        f"output {place} of batch {number}: {error:.2g} of its largest value, at"
                        f" most {allowed:.2g} is allowed"
                    )
        return Accuracy(
            against="float64" if self._exact is not None else "the original",
            original=worst[1],
            fitted=worst[2],
            allowed=worst[2] / worst[0] if worst[0] else 0.0,
            places=tuple(places),
            agreement=_agreement(self.original, fitted),
        )

    def _errors(
        self, number: int, place: int, original: torch.Tensor, fitted: torch.Tensor
    ) -> tuple[float, float, float]:
        """Return the original's own error, the fitted one's, and what is allowed."""
        if self._exact is not None:
            exact = self._exact[number][place]
            own, error = _error(original, exact), _error(fitted, exact)
        else:
            own = _error(self._again[number][place], original)
            error = _error(fitted, original)
        is_float = original.dtype.is_floating_point
        rounding = ROUNDINGS * torch.finfo(original.dtype).eps if is_float else 1e-9
        if fitted.dtype != original.dtype or fitted.shape != original.shape:
            error = float("inf")
        return own, error, max(OWN_ERRORS * own, rounding)


def step_outputs(file: ModelFile, model: torch.nn.Module, batches: Sequence[Batch]) -> Outputs:
    """Return copies of the tensors that each step returns; random draws are the same each time."""
    found = []
    for batch in batches:
        torch.manual_seed(0)
        result = file.step(model, batch)
        found.append([tensor.detach().cpu().clone() for tensor in tensors_of(result)])
    return found


def _error(values: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the largest difference relative to the largest value; of integers the part unequal."""
    if values.shape != exact.shape:
        return float("inf")
    if not exact.dtype.is_floating_point:
        return float((values != exact).double().mean()) if values.numel() else 0.0
    return difference(values.double(), exact.double())


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


def _match(one: Outputs, other: Outputs) -> bool:
    return [_shapes(batch) for batch in one] == [_shapes(batch) for batch in other]


def _shapes(tensors: Sequence[torch.Tensor]) -> list[torch.Size]:
    return [tensor.shape for tensor in tensors]


def _agreement(original: Outputs, fitted: Outputs) -> float | None:
    """Return the part of rows whose largest element is at the same place; None without rows."""
    same, rows = 0, 0
    for outputs, others in zip(original, fitted, strict=True):
        for one, other in zip(outputs, others, strict=False):
            if one.dtype.is_floating_point and one.dim() > 1 and one.shape == other.shape:
                agree = one.argmax(-1) == other.argmax(-1)
                same, rows = same + int(agree.sum()), rows + agree.numel()
    return same / rows if rows else None
