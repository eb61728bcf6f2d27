"""One call of the command: from its arguments to the table and its files."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

import msgspec

from actors.cli import UsageError
from actors.exit_status import ExitStatus
from actors.supervisor.reporting.run_data.run_reader import checkpoint_database
from protocol.atomic_file import write_atomically
from scripts.comparison import comparison_arguments, comparison_runs, comparison_text
from scripts.comparison.comparison_arguments import COMMAND, ComparisonArguments, Phase
from scripts.comparison.earlier_rows import (
    FLAG,
    RowsByLabel,
    earlier_line,
    read_earlier,
    with_earlier,
)
from scripts.tables import run_description
from scripts.tables.result_files import RUN_FOLDER
from scripts.tables.result_rows import ProblemState, RunRows
from scripts.tables.run_description import RunDescription

ROWS_NAME = "comparison.json"
TURNS: dict[Phase, Phase] = {"agents": "evaluators", "evaluators": "agents"}


def main(argv: Sequence[str]) -> int:
    """Run what is asked for, write the results, print the table; return the exit status."""
    try:
        arguments = comparison_arguments.parse_arguments(argv)
        earlier = _earlier(arguments)
        if arguments.phase != "table":
            comparison_runs.check_runs(arguments)
        elif not any(comparison_runs.has_begun(arguments, run) for run in arguments.runs()):
            raise UsageError(f"--phase table: {arguments.results} has no run of this comparison")
        return _work(arguments, argv, earlier)
    except UsageError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return ExitStatus.USAGE
    except (OSError, ValueError) as error:  # a full disk, a file that is not a database
        print(f"the comparison can't go on: {error}", file=sys.stderr)
        return ExitStatus.FAULT


def _work(arguments: ComparisonArguments, argv: Sequence[str], earlier: RowsByLabel) -> int:
    status = ExitStatus.DONE
    if arguments.phase != "table":
        status = comparison_runs.serve_runs(arguments)
    found, page = _write(arguments, earlier)
    print(page)
    print(f"written to {arguments.results}: comparison.md, comparison.json", file=sys.stderr)
    if status is not ExitStatus.DONE:
        print(f"not complete; continue with: {COMMAND} {shlex.join(argv)}", file=sys.stderr)
        return status
    is_open = any(_is_open(run) for runs in found.values() for run in runs.values())
    if arguments.phase in TURNS and is_open:
        other = TURNS[arguments.phase]
        print(
            f"nothing is left for the {arguments.phase}; go on with the same command and"
            f" --phase {other}, here or where the folder is moved to",
            file=sys.stderr,
        )
    return ExitStatus.DONE


def _is_open(run: RunRows) -> bool:
    return any(row.state is ProblemState.UNFINISHED for row in run.rows)


def _earlier(arguments: ComparisonArguments) -> RowsByLabel:
    """Return the rows of `--earlier`; raise UsageError where they don't belong to this."""
    labels = [one.label for one in arguments.variations]
    tasks = [path.stem for path in arguments.tasks]
    written = arguments.results / ROWS_NAME
    if arguments.earlier is not None and arguments.earlier.resolve() == written.resolve():
        raise UsageError(
            f"{FLAG} {arguments.earlier}: this comparison writes it: copy it out of --results"
        )
    return read_earlier(arguments.earlier, labels, arguments.seeds, tasks)


def _write(arguments: ComparisonArguments, earlier: RowsByLabel) -> tuple[RowsByLabel, str]:
    """Write the page and all rows; return the rows of the runs that have begun, and the page."""
    found: RowsByLabel = {one.label: {} for one in arguments.variations}
    descriptions: list[RunDescription] = []
    for run in arguments.runs():
        measured = comparison_runs.rows_of(arguments, run)
        if measured is not None:
            place = arguments.results / run.folder / RUN_FOLDER
            found[run.variation.label][run.seed] = measured
            descriptions.append(run_description.read_description(place))
            checkpoint_database(place)  # reading leaves files next to the database
    rows = with_earlier(found, earlier)
    description = [*_description(arguments, descriptions), *earlier_line(earlier)]
    page = comparison_text.comparison_text(rows, description)
    arguments.results.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(rows), indent=2).decode()
    write_atomically(arguments.results / ROWS_NAME, f"{text}\n")
    write_atomically(arguments.results / "comparison.md", f"{page}\n")
    return found, page


def _description(arguments: ComparisonArguments, runs: Sequence[RunDescription]) -> list[str]:
    """Return what the page says of the runs; [] before one has begun."""
    if not runs:
        return []
    return run_description.description_lines(
        runs, arguments.repeating_command, arguments.answered_by, arguments.commit
    )
