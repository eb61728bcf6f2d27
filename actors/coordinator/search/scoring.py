"""The score of a verdict, and the key of a kernel."""

from __future__ import annotations

import hashlib

from actors.coordinator.search.search import ROOT_KERNEL
from actors.coordinator.search.tree import FAILED_SCORE
from protocol.values import Reference, Verdict


def score_us(verdict: Verdict, reference: Reference) -> float:
    """Return a node's score: its runtime on the reference's own clock, or `FAILED_SCORE`.

    The ratio was measured in turn with the reference, so a slow drift of the machine's speed does
    not change it; a bare median would change.  `gateway/sanitize.py` has checked the figures.
    """
    if not verdict.is_correct or not verdict.speedup:
        return FAILED_SCORE
    return reference.eager_us / verdict.speedup


def kernel_of(source: str, verdict: Verdict | None = None) -> str:
    """Return the key of a distinct kernel; a renamed reference has the root's key."""
    if verdict is not None and verdict.is_renamed_reference:
        return ROOT_KERNEL
    return hashlib.blake2b(source.encode(), digest_size=16).hexdigest()
