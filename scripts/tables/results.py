"""Results pages from run folders: `python -m scripts.tables.results RUN... --out FOLDER`.

Writes FOLDER/README.md (a table of all problems, then every attempt of each) and the winners'
sources, one file a problem; with --brief the table alone.  Nothing is run, and the run folders stay
as they are.  A run that a person steered, or whose requests a person answered, is refused: its
results are not the search's.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from actors.cli import OneLineParser, UsageError
from actors.exit_status import ExitStatus
from actors.supervisor.reporting.run_data.formatting import counted
from actors.supervisor.reporting.run_data.run_reader import RunReader, checkpoint_database
from actors.supervisor.reporting.run_data.run_tables import AttemptRecord
from actors.supervisor.reporting.run_data.snapshot import Snapshot, TaskState
from protocol.atomic_file import write_atomically
from protocol.run_db import RUN_DB
from protocol.values import Value
from scripts.tables import result_rows, run_description
from scripts.tables.published_winners import winner_text
from scripts.tables.result_files import RUN_FOLDER
from scripts.tables.result_rows import ProblemRow
from scripts.tables.results_text import PageRemarks, RunPage, TaskPage, results_text

PAGE = "README.md"


class WinnerFile(Value, frozen=True, kw_only=True):
    """One source to write."""

    name: str
    text: str


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page and the sources of the named runs; return the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        pages, winners = read_runs(arguments.runs)
        told = PageRemarks(
            answered_by=arguments.answered_by, commit=arguments.commit, notes=tuple(arguments.notes)
        )
        pages = [replace(page, remarks=told) for page in pages]
        winners = [] if arguments.brief else winners
        arguments.out.mkdir(parents=True, exist_ok=True)
        for one in winners:
            write_atomically(arguments.out / one.name, one.text)
        text = results_text(pages, arguments.title, is_brief=arguments.brief)
        write_atomically(arguments.out / PAGE, f"{text}\n")
    except (UsageError, ValueError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return int(ExitStatus.USAGE)
    except OSError as error:
        print(f"can't use {error.filename or arguments.out}: {error.strerror}", file=sys.stderr)
        return int(ExitStatus.USAGE)
    found = counted(sum(len(page.tasks) for page in pages), "problem")
    of = f"{counted(len(pages), 'run')}, {counted(len(winners), 'winner')}"
    print(f"{arguments.out / PAGE}: {found} of {of}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="python -m scripts.tables.results", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--out", required=True, type=Path, metavar="FOLDER", help="for the page")
    parser.add_argument(
        "--answered-by",
        default="",
        metavar="TEXT",
        help="what answered behind --base-url, in words; the model's name is written anyway",
    )
    parser.add_argument(
        "--commit", default="", metavar="TEXT", help="that judged; no run stores it"
    )
    parser.add_argument(
        "--note", dest="notes", action="append", default=[], metavar="TEXT", help="a line of yours"
    )
    parser.add_argument("--title", default="Results", metavar="TEXT", help="of the page (Results)")
    parser.add_argument(
        "--brief", action="store_true", help="no table of attempts and no winners' sources"
    )
    return parser


def read_runs(run_dirs: Sequence[Path]) -> tuple[list[RunPage], list[WinnerFile]]:
    """Return the pages of runs and their winners' files; raise UsageError for one not to show."""
    pages: list[RunPage] = []
    winners: dict[str, WinnerFile] = {}
    for given in run_dirs:
        run_dir = given / RUN_FOLDER if (given / RUN_FOLDER).is_dir() else given
        if not (run_dir / RUN_DB).is_file():
            raise UsageError(f"{given} is not a run folder: it has no {RUN_DB}")
        page, sources = _read_run(run_dir, taken=set(winners))
        winners |= {source.name: source for source in sources}
        pages.append(page)
    return pages, list(winners.values())


def _read_run(run_dir: Path, taken: set[str]) -> tuple[RunPage, list[WinnerFile]]:
    rows = result_rows.rows_of_run(run_dir, any_task=True)  # raises for a run that was steered
    reader = RunReader(run_dir)
    try:
        snapshot = reader.poll() or Snapshot()
        attempts = reader.attempt_rows()
        tasks: list[TaskPage] = []
        sources: list[WinnerFile] = []
        description = run_description.describe(run_dir, reader, snapshot)
        hardware = rows.hardware or description.settings.device
        models = ", ".join(description.models)
        lost = {(one.task, one.node) for one in reader.spend_by_node() if one.spend.lost}
        states = {state.name: state for state in snapshot.tasks}
        for row in rows.rows:
            state = states.get(row.task)
            if state is None:
                continue
            text = winner_text(state, _winner_source(reader, state), models, hardware)
            name = f"{row.task}.py"
            if name in taken:  # another run has the same problem
                name = f"{row.task}.{_run_name(run_dir)}.py"
            if text:
                sources.append(WinnerFile(name=name, text=text))
            task = _task_page(row, state, attempts, name if text else "")
            numbers = frozenset(number for named, number in lost if named == row.task)
            tasks.append(replace(task, with_lost_call=numbers))
    except sqlite3.DatabaseError as error:
        raise UsageError(f"{run_dir / RUN_DB} can't be read: {error}") from error
    finally:
        reader.close()
    checkpoint_database(run_dir)  # reading leaves files next to the database
    page = RunPage(description=description, run_minutes=rows.run_minutes, tasks=tuple(tasks))
    return page, sources


def _task_page(
    row: ProblemRow, state: TaskState, attempts: Sequence[AttemptRecord], winner: str
) -> TaskPage:
    best = state.best
    return TaskPage(
        row=row,
        attempts=tuple(one for one in attempts if one.task == row.task and one.verdict),
        ideas={node.number: node.advice for node in state.attempts},
        amended={n.number: n.verdict.amended for n in state.attempts if n.verdict.amended},
        bytes_us=_bytes_us(state),
        max_error=best.verdict.max_error if best else None,
        labels=best.verdict.labels if best else (),
        spend=state.spend,
        winner=winner,
        notes=state.notes,
    )


def _bytes_us(state: TaskState) -> float | None:
    """Return how long the task's bytes take at the device's rates; None where unknown."""
    facts = state.reference.facts if state.reference else None
    floor = facts.floor if facts else None
    return None if floor is None else floor.parts.get("bytes")


def _winner_source(reader: RunReader, state: TaskState) -> str:
    """Return the best candidate as it was written; best.py also has the task's own module."""
    return reader.source_of(state.name, state.best.number) if state.best else ""


def _run_name(run_dir: Path) -> str:
    return (run_dir.parent if run_dir.name == RUN_FOLDER else run_dir).resolve().name


if __name__ == "__main__":
    sys.exit(main())
