"""The cases of a task, with what its best candidate gave there: for result.json and the report."""

from __future__ import annotations

import msgspec

from actors.supervisor.reporting.run_data.snapshot import TaskState
from protocol.values import Value


class CaseRow(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One case of a task, and what its best candidate gave there."""

    name: str
    weight: float
    inputs: str
    eager_us: float
    compile_us: float | None
    max_autotune_us: float | None
    median_us: float | None = None
    speedup: float | None = None
    speedup_ci95: tuple[float, float] | None = None


def case_rows(task: TaskState) -> tuple[CaseRow, ...]:
    """Return the cases of a task with the figures of its best candidate, or of the closest one."""
    best = task.best or task.closest
    results = {each.name: each for each in best.verdict.cases} if best else {}
    references = task.reference.cases if task.reference else ()
    rows = []
    for each in references:
        found = results.get(each.name)
        row = CaseRow(
            name=each.name,
            weight=round(each.weight, 6),
            inputs=each.inputs,
            eager_us=each.eager_us,
            compile_us=each.compile_us,
            max_autotune_us=each.max_autotune_us,
        )
        if found is not None:
            row = msgspec.structs.replace(
                row,
                median_us=found.median_us,
                speedup=found.speedup,
                speedup_ci95=found.speedup_ci95,
            )
        rows.append(row)
    return tuple(rows)
