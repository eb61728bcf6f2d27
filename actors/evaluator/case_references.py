"""The figures of a task with cases, from those of its cases.  Pure.

Times are weighted geometric means, as scores are, so that their ratios are those of the cases.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from actors.evaluator.timing.baseline_cache import ReferenceBaselines
from protocol.cases import CaseReference, TaskCase, geometric_mean
from protocol.values import Reference


def combined_reference(cases: Sequence[TaskCase], measured: Sequence[Reference]) -> Reference:
    """Return the reference of a task; what is not a time is of the first, heaviest case."""
    weights = [case.weight for case in cases]
    figures = tuple(
        CaseReference(
            name=case.name,
            weight=case.weight,
            eager_us=one.eager_us,
            compile_us=one.compile_us,
            max_autotune_us=one.max_autotune_us,
            inputs=one.inputs,
            outputs=one.outputs,
            judged=one.judged,
        )
        for case, one in zip(cases, measured, strict=True)
    )
    first = measured[0]
    is_pending = any(one.baselines_pending for one in measured)
    eager_us = geometric_mean([one.eager_us for one in measured], weights)
    return replace(
        first,
        eager_us=first.eager_us if eager_us is None else eager_us,
        compile_us=None
        if is_pending
        else geometric_mean([one.compile_us for one in measured], weights),
        max_autotune_us=None
        if is_pending
        else geometric_mean([one.max_autotune_us for one in measured], weights),
        baselines_pending=is_pending,
        notes=tuple(dict.fromkeys(note for one in measured for note in one.notes)),
        floor_us=geometric_mean([one.floor_us for one in measured], weights),
        cases=figures,
    )


def combined_baselines(
    cases: Sequence[TaskCase], measured: Sequence[ReferenceBaselines]
) -> ReferenceBaselines:
    """Return torch.compile's times of a task; the only ones where it has no cases."""
    if not cases:
        return measured[0]
    weights = [case.weight for case in cases]
    eager_us = geometric_mean([one.eager_us for one in measured], weights)
    return ReferenceBaselines(
        eager_us=measured[0].eager_us if eager_us is None else eager_us,
        compile_us=geometric_mean([one.compile_us for one in measured], weights),
        max_autotune_us=geometric_mean([one.max_autotune_us for one in measured], weights),
    )
