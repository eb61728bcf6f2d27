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
from scripts.tables import run_description
from scripts.tables.result_files import RUN_FOLDER
from scripts.tables.result_rows import ProblemState, RunRows
from scripts.tables.run_description import RunDescription

TURNS: dict[Phase, Phase] = {"agents": "evaluators", "evaluators": "agents"}
RunsByLabel = dict[str, dict[int, RunRows]]


def main(argv: Sequence[str]) -> int:
    """Run what is asked for, write the results, print the table; return the exit status."""
    try:
        arguments = comparison_arguments.parse_arguments(argv)
        if arguments.phase != "table":
            comparison_runs.check_runs(arguments)
        elif not any(comparison_runs.has_begun(arguments, run) for run in arguments.runs()):
            raise UsageError(f"--phase table: {arguments.results} has no run of this comparison")
        return _work(arguments, argv)
    except UsageError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return ExitStatus.USAGE
    except (OSError, ValueError) as error:  # a full disk, a file that is not a database
        print(f"the comparison can't go on: {error}", file=sys.stderr)
        return ExitStatus.FAULT


def _work(arguments: ComparisonArguments, argv: Sequence[str]) -> int:
    status = ExitStatus.DONE
    if arguments.phase != "table":
        status = comparison_runs.serve_runs(arguments)
    found, page = _write(arguments)
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


def _write(arguments: ComparisonArguments) -> tuple[RunsByLabel, str]:
    """Write the page and all rows of the runs that have begun; return the rows and the page."""
    found: RunsByLabel = {one.label: {} for one in arguments.variations}
    descriptions: list[RunDescription] = []
    for run in arguments.runs():
        rows = comparison_runs.rows_of(arguments, run)
        if rows is not None:
            place = arguments.results / run.folder / RUN_FOLDER
            found[run.variation.label][run.seed] = rows
            descriptions.append(run_description.read_description(place))
            checkpoint_database(place)  # reading leaves files next to the database
    page = comparison_text.comparison_text(found, _description(arguments, descriptions))
    arguments.results.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(found), indent=2).decode()
    write_atomically(arguments.results / "comparison.json", f"{text}\n")
    write_atomically(arguments.results / "comparison.md", f"{page}\n")
    return found, page


def _description(arguments: ComparisonArguments, runs: Sequence[RunDescription]) -> list[str]:
    """Return what the page says of the runs; [] before one has begun."""
    if not runs:
        return []
    return run_description.description_lines(
        runs, arguments.repeating_command, arguments.answered_by, arguments.commit
    )
