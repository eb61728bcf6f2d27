"""The figures of `run.db` as columns, and the views over them.

The coordinator writes these columns with each row and makes the views, so that sqlite3 alone shows
a run.  Programs read the same views; for a run of an older version they compute the columns from
the stored values.
"""

from __future__ import annotations

import csv
import math
from functools import lru_cache
from importlib import resources

import msgspec

from protocol.values import Plan, Reference, Value, Verdict

Column = str | float | int | None
# In the tables `node` and `first_look`.
VERDICT_COLUMNS = (
    *("reason", "failed_in", "speedup", "low", "high", "median_us", "reference_us", "max_error"),
    *("build_s", "check_s", "timing_s", "labels", "sandbox_level", "device"),
)
REFERENCE_COLUMNS = ("eager_us", "compile_us", "max_autotune_us", "device_name")  # in `task`


class ColumnDescription(Value, frozen=True, kw_only=True):
    """What one column of a view means."""

    table: str
    column: str
    unit: str  # "" where it has none
    meaning: str


def column_descriptions() -> list[ColumnDescription]:
    """Return the description of every column of the views, in their order."""
    text = resources.files(__package__).joinpath("run_columns.csv").read_text(encoding="utf-8")
    return [msgspec.convert(row, ColumnDescription) for row in csv.DictReader(text.splitlines())]


def views() -> str:
    """Return the views of `run.db` as SQL, which replaces those of another version."""
    return resources.files(__package__).joinpath("run_views.sql").read_text(encoding="utf-8")


def verdict_columns(verdict: Verdict) -> dict[str, Column]:
    """Return the figures of a verdict by column."""
    low, high = verdict.speedup_ci95 or (None, None)
    figures = (
        *(verdict.reason, verdict.stage, _finite(verdict.speedup), _finite(low), _finite(high)),
        *(_finite(verdict.median_us), _finite(verdict.reference_us), _finite(verdict.max_error)),
        *(verdict.seconds.build, verdict.seconds.check, verdict.seconds.time),
        *(", ".join(verdict.labels), verdict.sandbox_level, verdict.device),
    )
    return dict(zip(VERDICT_COLUMNS, figures, strict=True))


def reference_columns(reference: Reference) -> dict[str, Column]:
    """Return the figures of a reference by column."""
    figures = (
        *(reference.eager_us, reference.compile_us, reference.max_autotune_us),
        reference.device.name,
    )
    return dict(zip(REFERENCE_COLUMNS, figures, strict=True))


@lru_cache(maxsize=4)  # SQL asks for the columns of one row one after the other
def _verdict(blob: bytes) -> tuple[str, dict[str, Column]]:
    verdict = msgspec.msgpack.decode(blob, type=Verdict)
    return verdict.verdict, verdict_columns(verdict)


def verdict_column(blob: bytes, column: str) -> Column:
    """Return one column of a stored verdict; `word`: its outcome."""
    word, columns = _verdict(blob)
    return word if column == "word" else columns[column]


def reference_column(blob: bytes | None, column: str) -> Column:
    """Return one column of a stored reference; None before it was measured."""
    if not blob:
        return None
    return reference_columns(msgspec.msgpack.decode(blob, type=Reference))[column]


def plan_advice(blob: bytes | None) -> str:
    """Return the advice of a stored plan; "" where there is none."""
    return msgspec.msgpack.decode(blob, type=Plan).advice if blob else ""


# Functions that SQL calls for the columns of an older run: name, number of arguments, function.
SQL_FUNCTIONS = (
    ("verdict_column", 2, verdict_column),
    ("reference_column", 2, reference_column),
    ("plan_advice", 1, plan_advice),
)
# How each column of this version is computed in a row that an older version wrote.
COMPUTED_COLUMNS: dict[str, dict[str, str]] = {
    "node": {name: f"verdict_column(verdict, '{name}')" for name in VERDICT_COLUMNS},
    "first_look": {
        name: f"verdict_column(verdict, '{name}')" for name in ("word", *VERDICT_COLUMNS)
    },
    "task": {name: f"reference_column(reference, '{name}')" for name in REFERENCE_COLUMNS},
    "attempt": {"advice": "plan_advice(plan)"},
}


def _finite(figure: float | None) -> float | None:
    return figure if figure is not None and math.isfinite(figure) else None
