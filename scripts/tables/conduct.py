"""One call of the command: from what was asked to the table and its files."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from actors.supervisor.flags import UsageError
from actors.supervisor.outcome import Exit
from scripts.tables import command, results, runs, show
from scripts.tables.command import COMMAND, Ask
from scripts.tables.problems import Problem, choose
from scripts.tables.rows import Rows, State


def conduct(argv: Sequence[str]) -> int:
    """Run what is asked for, write the results, print the table; return the exit status."""
    try:
        ask = command.parse(argv)
        if ask.folders:
            return _compare(ask)
        problems = choose(ask.root or Path(), ask.levels, ask.words)
        runs.check(ask, problems)
    except UsageError as error:
        return _refuse(str(error))
    except OSError as error:  # a folder that may not be read, a name too long to be one
        return _refuse(f"can't use {error.filename or 'stdout'}: {error.strerror}")
    try:
        return _work(ask, problems, argv)
    except (OSError, ValueError) as error:  # a full disk, a database that is none
        print(f"the results can't be written: {error}", file=sys.stderr)
        return int(Exit.FAULT)


def _work(ask: Ask, problems: Sequence[Problem], argv: Sequence[str]) -> int:
    """Run one strategy after the other; show what they have come to."""
    found: dict[str, Rows] = {}
    status = Exit.NONE
    for strategy in ask.strategies:
        place = ask.place / strategy
        status = runs.serve(ask, problems, strategy)
        if status is Exit.USAGE and not runs.is_over(place, ask):
            return int(status)  # the supervisor has said why it can't begin
        found[strategy] = results.write(place)
        if status in (Exit.STOPPED, Exit.FAULT):
            break
    _show(ask, found)
    return _conclude(found, status, argv)


def _compare(ask: Ask) -> int:
    of = results.side_by_side(ask.folders)
    if ask.results is not None:
        try:
            ask.results.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--results {ask.results}: {error.strerror}") from error
        results.write_comparison(ask.results, of)
    print(show.table(of))
    return 0


def _show(ask: Ask, found: dict[str, Rows]) -> None:
    if len(ask.strategies) > 1:
        results.write_comparison(ask.place, found)
    print(show.table(found))
    print(f"written to {ask.place}: {', '.join(f'{strategy}/table.md' for strategy in found)}")


def _conclude(found: dict[str, Rows], status: Exit, argv: Sequence[str]) -> int:
    """Say what is still open; return the exit status of the table."""
    still = sum(row.state is State.UNFINISHED for rows in found.values() for row in rows.rows)
    if not still and status not in (Exit.STOPPED, Exit.FAULT):
        return 0
    print(f"{still} problems are open; go on with: {COMMAND} {shlex.join(argv)}", file=sys.stderr)
    return int(Exit.FAULT if status is Exit.FAULT else Exit.STOPPED)


def _refuse(line: str) -> int:
    print(" ".join(line.split()), file=sys.stderr)
    return int(Exit.USAGE)
