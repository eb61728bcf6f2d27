"""The results folder: rows.json, rows.csv, table.md and the export of each strategy.

    RESULTS/STRATEGY/run/       the supervisor's run folder: the truth, resumable
    RESULTS/STRATEGY/rows.json, rows.csv, table.md, kernelbench/
    RESULTS/compare.md          several strategies side by side

All but the run folders is written anew from `run.db` whenever the command ends.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from actors.cli import UsageError
from actors.supervisor.reporting.run_reader import checkpoint_database
from protocol.atomic_file import write_atomically
from protocol.settings import FILE_NAME
from scripts.tables import kernelbench_export, result_rows, table_text
from scripts.tables.result_rows import ProblemRow, RunRows

RUN_FOLDER, ROWS_FILE, COMPARE_FILE = "run", "rows.json", "compare.md"


def write(place: Path) -> RunRows:
    """Write what one strategy's run, which nobody serves now, has come to; return its rows."""
    found = result_rows.rows_of_run(place / RUN_FOLDER)
    checkpoint_database(place / RUN_FOLDER)  # reading has left files beside the database
    text = msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
    write_atomically(place / ROWS_FILE, text)
    write_atomically(place / "rows.csv", _csv(found.rows))
    write_atomically(place / "table.md", table_text.tables_text({found.strategy: found}))
    kernelbench_export.write(place, place / RUN_FOLDER, found)
    return found


def write_comparison(top: Path, of: Mapping[str, RunRows]) -> None:
    """Write several strategies side by side."""
    write_atomically(top / COMPARE_FILE, table_text.tables_text(of))


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
            f"--compare {place}: that is no results folder (it has no {ROWS_FILE} and no "
            f"{RUN_FOLDER})"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"--compare {place}: {error}") from error


def side_by_side(places: Sequence[Path]) -> dict[str, RunRows]:
    """Return label -> rows of folders; raise UsageError where their problems differ."""
    found = [read(place) for place in places]
    chosen = [[row.task for row in one.rows] for one in found]
    for place, tasks in zip(places[1:], chosen[1:], strict=True):
        if set(tasks) != set(chosen[0]):
            raise UsageError(
                f"--compare: {place} has other problems than {places[0]}: only runs of the same"
                " problems can be compared"
            )
    return dict(zip(_labels(places, found), found, strict=True))


def _labels(places: Sequence[Path], found: Sequence[RunRows]) -> list[str]:
    """Return short names: the strategy, and what tells two of the same strategy apart."""
    for tell in (
        lambda place, one: one.strategy,
        lambda place, one: f"{one.strategy} {one.policy}",
        lambda place, one: f"{one.strategy} {one.model}",
    ):
        labels = [str(tell(place, one)) for place, one in zip(places, found, strict=True)]
        if len(set(labels)) == len(labels):
            return labels
    return [str(place) for place in places]


def _csv(of: Sequence[ProblemRow]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(ProblemRow.__struct_fields__)
    for row in of:
        writer.writerow(_cell(getattr(row, field)) for field in ProblemRow.__struct_fields__)
    return file.getvalue()


def _cell(value: object) -> object:
    """Return what a spreadsheet can take; nothing stays empty."""
    if isinstance(value, dict):
        return " ".join(f"{word}={count}" for word, count in value.items())
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return value
