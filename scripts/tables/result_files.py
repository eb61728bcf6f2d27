"""The results folder: rows.json, rows.csv, table.md and the export of each strategy.

    RESULTS/STRATEGY/run/       the supervisor's run folder, the source of the rest, resumable
    RESULTS/STRATEGY/rows.json, rows.csv, table.md, kernelbench/
    RESULTS/compare.md          several strategies side by side

All files but the run folders are written anew from `run.db` at each end of the command.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from actors.cli import UsageError
from actors.supervisor.reporting.run_data.run_reader import checkpoint_database
from protocol.atomic_file import write_atomically
from protocol.settings import FILE_NAME
from scripts.tables import kernelbench_export, result_rows, table_text
from scripts.tables.result_rows import ProblemRow, RunRows

RUN_FOLDER, ROWS_FILE, COMPARE_FILE = "run", "rows.json", "compare.md"


def write(place: Path) -> RunRows:
    """Write the results of one strategy's run, which no supervisor serves now; return its rows."""
    rows = result_rows.rows_of_run(place / RUN_FOLDER)
    checkpoint_database(place / RUN_FOLDER)  # reading leaves files next to the database
    text = msgspec.json.format(msgspec.json.encode(rows), indent=2).decode() + "\n"
    write_atomically(place / ROWS_FILE, text)
    write_atomically(place / "rows.csv", _csv(rows.rows))
    write_atomically(place / "table.md", table_text.tables_text({rows.strategy: rows}))
    kernelbench_export.write(place, place / RUN_FOLDER, rows)
    return rows


def write_comparison(top: Path, rows_by_label: Mapping[str, RunRows]) -> None:
    """Write several strategies side by side."""
    write_atomically(top / COMPARE_FILE, table_text.tables_text(rows_by_label))


def read(place: Path) -> RunRows:
    """Return the rows of a strategy's folder, or of a bare run folder; raise UsageError."""
    try:
        if (place / RUN_FOLDER / FILE_NAME).is_file():
            return result_rows.rows_of_run(place / RUN_FOLDER)
        if (place / FILE_NAME).is_file():
            return result_rows.rows_of_run(place)
        return msgspec.json.decode((place / ROWS_FILE).read_bytes(), type=RunRows)
    except FileNotFoundError:
        raise UsageError(
            f"--compare {place}: that is not a results folder (it has no {ROWS_FILE} and no "
            f"{RUN_FOLDER})"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"--compare {place}: {error}") from error


def side_by_side(places: Sequence[Path]) -> dict[str, RunRows]:
    """Return label -> rows of folders; raise UsageError where their problems differ."""
    runs = [read(place) for place in places]
    task_lists = [[row.task for row in run.rows] for run in runs]
    for place, tasks in zip(places[1:], task_lists[1:], strict=True):
        if set(tasks) != set(task_lists[0]):
            raise UsageError(
                f"--compare: {place} has other problems than {places[0]}: only runs of the same"
                " problems can be compared"
            )
    return dict(zip(_labels(places, runs), runs, strict=True))


def _labels(places: Sequence[Path], runs: Sequence[RunRows]) -> list[str]:
    """Return short names: the strategy, and if two are equal also the policy or the model."""
    for label_of in (
        lambda run: run.strategy,
        lambda run: f"{run.strategy} {run.policy}",
        lambda run: f"{run.strategy} {run.model}",
    ):
        labels = [str(label_of(run)) for run in runs]
        if len(set(labels)) == len(labels):
            return labels
    return [str(place) for place in places]


def _csv(rows: Sequence[ProblemRow]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(ProblemRow.__struct_fields__)
    for row in rows:
        writer.writerow(_cell(getattr(row, field)) for field in ProblemRow.__struct_fields__)
    return file.getvalue()


def _cell(value: object) -> object:
    """Return a value as a spreadsheet cell; None stays empty."""
    if isinstance(value, dict):
        return " ".join(f"{word}={count}" for word, count in value.items())
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return value
