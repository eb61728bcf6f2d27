"""Outputs as rows of logits: what sampling from them would see of a difference."""

from __future__ import annotations

import msgspec
import torch

TOP = 5
LEAST_CLASSES = 8  # a shorter row is not one of logits
MOST_ROWS = 4096  # of one output


class RowAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of the fitted model's outputs, compared with the original's."""

    rows: int
    top_1: float  # part of the rows whose largest element is the same
    top_5: float  # part of the five largest elements that are the same
    kl: float  # mean Kullback-Leibler divergence from the reference, nats
    own_kl: float  # the original's own from float64, or its own from a second run


class LogitRows:
    """Collects the rows of all outputs."""

    def __init__(self, *, is_exact: bool) -> None:
        """`is_exact`: the references are from float64."""
        self._is_exact = is_exact
        self._count = 0
        self._first = self._top = 0
        self._kl = self._own_kl = 0.0
        self._unit = 0.0  # the square of the largest rounding of a logit

    def add(self, original: torch.Tensor, fitted: torch.Tensor, reference: torch.Tensor) -> None:
        """Compare one output, if it is made of rows."""
        if not _is_rows(original) or original.shape != fitted.shape:
            return
        one, other, exact = (
            tensor.detach().reshape(-1, tensor.shape[-1])[:MOST_ROWS].double()
            for tensor in (original, fitted, reference)
        )
        if not bool(torch.isfinite(torch.stack([one, other, exact])).all()):
            return  # the largest error says so
        self._count += len(one)
        self._first += int((one.argmax(-1) == other.argmax(-1)).sum())
        self._top += int(_shared(one, other).sum())
        self._own_kl += float(_divergence(exact, one).sum())
        self._kl += float(_divergence(exact if self._is_exact else one, other).sum())
        step = torch.finfo(original.dtype).eps * float(one.abs().max())
        self._unit = max(self._unit, step**2)

    def agreement(self) -> RowAgreement | None:
        """Return what was found; None without rows."""
        if not self._count:
            return None
        return RowAgreement(
            rows=self._count,
            top_1=self._first / self._count,
            top_5=self._top / (TOP * self._count),
            kl=self._kl / self._count,
            own_kl=self._own_kl / self._count,
        )

    def problem(self, own_errors: float, roundings: float) -> str:
        """Return why the rows are too far from the reference; "" when they are not.

        A divergence is about the square of a logit's error.
        """
        found = self.agreement()
        if found is None:
            return ""
        allowed = max(own_errors**2 * found.own_kl, roundings**2 * self._unit)
        if not self._is_exact:
            allowed = max(allowed, self._unit**0.5)
        if found.kl <= allowed:
            return ""
        return (
            f"the rows of its outputs, as logits, diverge by {found.kl:.2g} nats (KL), at most"
            f" {allowed:.2g} is allowed"
        )


def _is_rows(tensor: torch.Tensor) -> bool:
    is_float = tensor.dtype.is_floating_point
    return (
        is_float and tensor.dim() > 1 and tensor.shape[-1] >= LEAST_CLASSES and tensor.numel() > 0
    )


def _shared(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return how many of a row's five largest elements are the same."""
    first, second = one.topk(TOP, -1).indices, other.topk(TOP, -1).indices
    return (first.unsqueeze(-1) == second.unsqueeze(-2)).any(-1).sum(-1)


def _divergence(reference: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the Kullback-Leibler divergence of each row as logits."""
    first, second = reference.log_softmax(-1), other.log_softmax(-1)
    return (first.exp() * (first - second)).sum(-1)
