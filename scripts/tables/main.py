"""One call of the command: from what was asked to the table and its files."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from actors.cli import UsageError
from actors.exit_status import ExitStatus
from scripts.tables import result_files, strategy_runs, table_arguments, table_text
from scripts.tables.problems import KernelBenchProblem, choose
from scripts.tables.result_rows import ProblemState, RunRows
from scripts.tables.table_arguments import COMMAND, TableArguments


def main(argv: Sequence[str]) -> int:
    """Run what is asked for, write the results, print the table; return the exit status."""
    try:
        arguments = table_arguments.parse_arguments(argv)
        if arguments.folders:
            return _compare(arguments)
        problems = choose(arguments.root or Path(), arguments.levels, arguments.words)
        strategy_runs.check_runs(arguments, problems)
    except UsageError as error:
        return _refuse(str(error))
    except OSError as error:  # a folder that may not be read, a name too long to be one
        return _refuse(f"can't use {error.filename or 'stdout'}: {error.strerror}")
    try:
        return _work(arguments, problems, argv)
    except (OSError, ValueError) as error:  # a full disk, a database that is none
        print(f"the results can't be written: {error}", file=sys.stderr)
        return int(ExitStatus.FAULT)


def _work(
    arguments: TableArguments, problems: Sequence[KernelBenchProblem], argv: Sequence[str]
) -> int:
    """Run one strategy after the other; show what they have come to."""
    found: dict[str, RunRows] = {}
    status = ExitStatus.NEGATIVE
    for strategy in arguments.strategies:
        place = arguments.results_folder / strategy
        status = strategy_runs.serve_run(arguments, problems, strategy)
        if status is ExitStatus.USAGE and not strategy_runs.is_over(place, arguments):
            return int(status)  # the supervisor has said why it can't begin
        found[strategy] = result_files.write(place)
        if status in (ExitStatus.STOPPED, ExitStatus.FAULT):
            break
    _show(arguments, found)
    return _conclude(found, status, argv)


def _compare(arguments: TableArguments) -> int:
    of = result_files.side_by_side(arguments.folders)
    if arguments.results is not None:
        try:
            arguments.results.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--results {arguments.results}: {error.strerror}") from error
        result_files.write_comparison(arguments.results, of)
    print(table_text.tables_text(of))
    return 0


def _show(arguments: TableArguments, found: dict[str, RunRows]) -> None:
    if len(arguments.strategies) > 1:
        result_files.write_comparison(arguments.results_folder, found)
    print(table_text.tables_text(found))
    print(
        f"written to {arguments.results_folder}: "
        f"{', '.join(f'{strategy}/table.md' for strategy in found)}"
    )


def _conclude(found: dict[str, RunRows], status: ExitStatus, argv: Sequence[str]) -> int:
    """Say what is still open; return the exit status of the table."""
    still = sum(
        row.state is ProblemState.UNFINISHED for rows in found.values() for row in rows.rows
    )
    if not still and status not in (ExitStatus.STOPPED, ExitStatus.FAULT):
        return 0
    print(f"{still} problems are open; go on with: {COMMAND} {shlex.join(argv)}", file=sys.stderr)
    return int(ExitStatus.FAULT if status is ExitStatus.FAULT else ExitStatus.STOPPED)


def _refuse(line: str) -> int:
    print(" ".join(line.split()), file=sys.stderr)
    return int(ExitStatus.USAGE)
