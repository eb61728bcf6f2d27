"""One call of the command: from its arguments to the table and its files."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from actors.cli import UsageError
from actors.exit_status import ExitStatus
from actors.supervisor.reporting.run_data.formatting import counted
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
        problems = choose(arguments.root or Path(), arguments.levels, arguments.problem_selection)
        strategy_runs.check_runs(arguments, problems)
    except UsageError as error:
        return _print_usage_error(str(error))
    except OSError as error:  # a folder without read permission, a name that is too long
        return _print_usage_error(f"can't use {error.filename or 'stdout'}: {error.strerror}")
    try:
        return _work(arguments, problems, argv)
    except UsageError as error:
        return _print_usage_error(str(error))
    except (OSError, ValueError) as error:  # a full disk, a file that is not a database
        print(f"the results can't be written: {error}", file=sys.stderr)
        return int(ExitStatus.FAULT)


def _work(
    arguments: TableArguments, problems: Sequence[KernelBenchProblem], argv: Sequence[str]
) -> int:
    """Run one strategy after the other; print their tables."""
    rows_by_strategy: dict[str, RunRows] = {}
    status = ExitStatus.NEGATIVE
    for strategy in arguments.strategies:
        place = arguments.results_folder / strategy
        status = strategy_runs.serve_run(arguments, problems, strategy)
        if status is ExitStatus.USAGE and not strategy_runs.is_over(place, arguments):
            return int(status)  # the supervisor has printed the reason
        rows_by_strategy[strategy] = result_files.write(place)
        if status in (ExitStatus.STOPPED, ExitStatus.FAULT):
            break
    _show(arguments, rows_by_strategy)
    return _conclude(rows_by_strategy, status, argv)


def _compare(arguments: TableArguments) -> int:
    rows_by_label = result_files.side_by_side(arguments.folders)
    if arguments.results is not None:
        try:
            arguments.results.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--results {arguments.results}: {error.strerror}") from error
        result_files.write_comparison(arguments.results, rows_by_label)
    print(table_text.tables_text(rows_by_label))
    return 0


def _show(arguments: TableArguments, rows_by_strategy: dict[str, RunRows]) -> None:
    if len(arguments.strategies) > 1:
        result_files.write_comparison(arguments.results_folder, rows_by_strategy)
    print(table_text.tables_text(rows_by_strategy))
    print(
        f"written to {arguments.results_folder}: "
        f"{', '.join(f'{strategy}/table.md' for strategy in rows_by_strategy)}"
    )


def _conclude(rows_by_strategy: dict[str, RunRows], status: ExitStatus, argv: Sequence[str]) -> int:
    """Print the number of open problems; return the exit status of the table."""
    open_count = sum(
        row.state is ProblemState.UNFINISHED
        for rows in rows_by_strategy.values()
        for row in rows.rows
    )
    if not open_count and status not in (ExitStatus.STOPPED, ExitStatus.FAULT):
        return 0
    print(
        f"not finished: {counted(open_count, 'problem')};"
        f" continue with: {COMMAND} {shlex.join(argv)}",
        file=sys.stderr,
    )
    return int(ExitStatus.FAULT if status is ExitStatus.FAULT else ExitStatus.STOPPED)


def _print_usage_error(line: str) -> int:
    print(" ".join(line.split()), file=sys.stderr)
    return int(ExitStatus.USAGE)
