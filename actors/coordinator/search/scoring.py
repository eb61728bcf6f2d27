"""From a verdict to a score, and what an evaluator's word is checked for."""

from __future__ import annotations

import hashlib
import math

from actors.coordinator.search.search import ROOT_KERNEL
from actors.coordinator.search.tree import FAILED_SCORE
from protocol.values import Outcome, Reference, Verdict


def score_us(verdict: Verdict, reference: Reference) -> float:
    """Return a node's score: its runtime on the reference's own clock, or FAILED.

    The ratio was measured in turn with the reference, so it survives a machine whose speed
    drifts through the night; a bare median does not.
    """
    if not verdict.is_correct or verdict.speedup is None:
        return FAILED_SCORE
    return reference.eager_us / verdict.speedup


def checked_verdict(verdict: Verdict) -> Verdict:
    """Return the verdict, or a rejection when its figures can't be true."""
    figures = (verdict.median_us, verdict.speedup)
    if verdict.is_correct and not all(is_positive(figure) for figure in figures):
        return Verdict(
            verdict=Outcome.REJECTED,
            reason="an evaluator reported impossible figures",
            stage="time",
        )
    return verdict


def is_positive(figure: float | None) -> bool:
    """Whether a figure was measured and can be a time or a ratio."""
    return figure is not None and math.isfinite(figure) and figure > 0.0


def kernel_of(source: str, verdict: Verdict | None = None) -> str:
    """Return what tells distinct kernels apart; the reference renamed is the root's own kernel."""
    if verdict is not None and verdict.is_renamed_reference:
        return ROOT_KERNEL
    return hashlib.blake2b(source.encode(), digest_size=16).hexdigest()
