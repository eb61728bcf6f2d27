"""The variant that a race chose, as a node's source."""

from __future__ import annotations

from msgspec.structs import replace

from actors.coordinator.storage.store import Store
from actors.tune_space import variant_source
from protocol.values import Verdict


def keep_variant(store: Store, task: str, number: int, verdict: Verdict) -> None:
    """Make the best variant of a candidate that declared several the node's source.

    The text is made here, of the candidate that an agent wrote: an evaluator sends no source.
    """
    candidate = store.candidate(task, number)
    if verdict.variant is None or candidate is None:
        return
    source = variant_source(candidate.source, verdict.variant)
    if source is not None:
        store.save_candidate(task, number, replace(candidate, source=source))
