"""Rows of an earlier comparison whose runs are gone, for `--earlier FILE`.

They count as further seeds.  What a run stores besides its rows (its versions, its day, its rules)
is lost with it, so the page says which seeds are read from rows alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from actors.cli import UsageError
from scripts.tables.result_rows import RunRows

FLAG = "--earlier"
RowsByLabel = dict[str, dict[int, RunRows]]  # by variation, then by seed: comparison.json


def read_earlier(
    path: Path | None, labels: Sequence[str], seeds: Sequence[int], tasks: Sequence[str]
) -> RowsByLabel:
    """Return the rows of these variations; raise UsageError where they can't be further seeds."""
    if path is None:
        return {}
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=RowsByLabel)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{FLAG} {path}: expected a comparison.json: {error}") from error
    found = {label: stored[label] for label in labels if stored.get(label)}
    if not found:
        raise UsageError(f"{FLAG} {path}: it has none of these variations: {'; '.join(labels)}")
    for label, runs in found.items():
        if again := sorted({*runs} & {*seeds}):
            raise UsageError(
                f"{FLAG} {path}: it has seed {again[0]} of {label}, too: leave the seed out of"
                " --seeds"
            )
        for run in runs.values():
            if {row.task for row in run.rows} != {*tasks}:
                raise UsageError(f"{FLAG} {path}: its tasks are not those that --task names")
    return found


def with_earlier(found: RowsByLabel, earlier: RowsByLabel) -> RowsByLabel:
    """Return all rows, seed by seed."""
    return {
        label: dict(sorted({**earlier.get(label, {}), **runs}.items()))
        for label, runs in found.items()
    }


def earlier_line(earlier: Mapping[str, Mapping[int, RunRows]]) -> list[str]:
    """Return the page's line about seeds that are read from rows alone; [] without such seeds."""
    runs = {seed: run for by_seed in earlier.values() for seed, run in by_seed.items()}
    if not runs:
        return []
    facts = sorted(
        {
            f"{run.budget} attempts each on {run.hardware or run.device}, model {run.model}"
            for run in runs.values()
        }
    )
    names = ", ".join(map(str, sorted(runs)))
    return [
        f"- Of an earlier comparison, by its rows alone: seed {names} ({'; '.join(facts)}); the"
        " other lines are about the other seeds"
    ]
