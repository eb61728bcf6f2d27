"""`python scripts/export.py RUN`: write a run's attempts, verdicts and calls as CSV or JSON.

Each of the tables tasks, attempts, verdicts, calls and leases becomes one file, and `columns.csv`
explains every column with its unit.  The script only reads the run, also while it goes on, and all
files show the same moment.  No file is overwritten.
"""

from __future__ import annotations

import csv
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TextIO

import msgspec

ROOT = Path(__file__).resolve().parents[1]
COLUMNS_FILE = "columns.csv"
ORDERS = {  # the tables, and the order of their rows
    "tasks": "task",
    "attempts": "task, number",
    "verdicts": "task, number, look DESC",  # the first look first
    "calls": "id",
    "leases": "epoch",
}
# The texts that --texts adds to a table: column, its meaning, its SQL.
NODE = "FROM main.node WHERE node.task = {table}.task AND node.number = {table}.number"
TEXTS = {
    "attempts": (
        ("advice", "the whole advice of its plan", f"(SELECT advice {NODE})"),
        ("source", "the candidate's source", f"(SELECT source {NODE})"),
    ),
    "calls": (
        ("request", "the request", "(SELECT request FROM call WHERE call.id = calls.id)"),
        ("reply", "the reply", "(SELECT reply FROM call WHERE call.id = calls.id)"),
    ),
}


class FileExistsInOutputError(Exception):
    """The output folder holds a file of the export already; one line."""


def main(arguments: list[str] | None = None) -> int:
    """Write the files and print their paths; return the exit status."""
    sys.path.insert(0, str(ROOT))  # works from a checkout that was never installed
    from actors.startup_packages import end_without_packages

    end_without_packages()
    from actors.cli import OneLineParser, exit_when_reader_closes
    from actors.commands import typed_command, with_typed_commands
    from actors.exit_status import ExitStatus

    parser = OneLineParser(prog=typed_command("export"), description=with_typed_commands(__doc__))
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="comma-separated values (the default)")
    form.add_argument("--json", action="store_true", help="one array of objects a table")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="the folder of the files (default: ./NAME-export)"
    )
    parser.add_argument(
        "--texts", action="store_true", help="also sources, advice, requests and replies"
    )
    parsed = parser.parse_args(arguments)
    exit_when_reader_closes()
    folder = parsed.out or Path(f"{parsed.run.resolve().name}-export")
    try:
        for line in export(
            parsed.run, folder, "json" if parsed.json else "csv", texts=parsed.texts
        ):
            print(line, flush=True)
    except FileExistsError as error:
        print(f"export: {error.filename} is not a folder: name one with --out", file=sys.stderr)
        return ExitStatus.USAGE
    except OSError as error:
        print(f"export: can't write {error.filename}: {error.strerror}", file=sys.stderr)
        return ExitStatus.USAGE
    except (FileExistsInOutputError, ValueError, sqlite3.DatabaseError) as error:
        print(f"export: {' '.join(str(error).split())}", file=sys.stderr)
        return ExitStatus.USAGE
    return ExitStatus.DONE


def export(run_dir: Path, folder: Path, form: str, *, texts: bool = False) -> Iterator[str]:
    """Write the files of a run into `folder`; yield a line about each one that is written.

    Raises ValueError where there is no run, FileExistsInOutputError before anything is written.
    """
    from actors.supervisor.reporting.run_data import run_folder_integrity, run_tables
    from actors.supervisor.reporting.run_data.formatting import counted

    run_folder_integrity.check_readable(run_dir)
    paths = {table: folder / f"{table}.{form}" for table in ORDERS}
    for path in (*paths.values(), folder / COLUMNS_FILE):
        if path.exists():
            raise FileExistsInOutputError(
                f"{path} exists and is not overwritten: name another folder with --out"
            )
    folder.mkdir(parents=True, exist_ok=True)
    with closing(run_folder_integrity.open_read_only(run_dir)) as run:
        run.text_factory = lambda stored: stored.decode(errors="replace")
        run.isolation_level = None
        run_tables.prepare_views(run)
        run.execute("BEGIN")  # all tables are read as of one moment
        for table, path in paths.items():
            rows = run.execute(_query(table, texts=texts))
            names = [column[0] for column in rows.description]
            with _new_file(path) as file:
                write = _write_json if form == "json" else _write_csv
                count = write(file, names, rows)
            yield f"{path}: {counted(count, table.removesuffix('s'))}"
    with _new_file(folder / COLUMNS_FILE) as file:
        csv.writer(file, lineterminator="\n").writerows(_columns(texts=texts))
    yield f"{folder / COLUMNS_FILE}: what each column means, and its unit"


def _query(table: str, *, texts: bool) -> str:
    """Return the query of one table's rows."""
    added = TEXTS.get(table, ()) if texts else ()
    columns = ", ".join(
        [f"{table}.*", *(f"{how.format(table=table)} AS {name}" for name, _, how in added)]
    )
    return f"SELECT {columns} FROM {table} ORDER BY {ORDERS[table]}"  # noqa: S608  # our names


def _columns(*, texts: bool) -> Iterator[Sequence[str]]:
    """Yield the rows of `columns.csv`, its header included."""
    from protocol.run_views import column_descriptions

    yield "table", "column", "unit", "meaning"
    for one in column_descriptions():
        yield one.table, one.column, one.unit, one.meaning
    for table, added in TEXTS.items() if texts else ():
        for name, meaning, _ in added:
            yield table, name, "", meaning


def _write_csv(file: TextIO, names: Sequence[str], rows: Iterator[Sequence[object]]) -> int:
    """Write a header and the rows; return the number of rows."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    count = 0
    for row in rows:
        writer.writerow(row)
        count += 1
    return count


def _write_json(file: TextIO, names: Sequence[str], rows: Iterator[Sequence[object]]) -> int:
    """Write an array of objects, a line each; return the number of rows."""
    count = 0
    file.write("[")
    for count, row in enumerate(rows, start=1):
        line = msgspec.json.encode(dict(zip(names, row, strict=True))).decode()
        file.write(("\n" if count == 1 else ",\n") + line)
    file.write("\n]\n")
    return count


@contextmanager
def _new_file(path: Path) -> Iterator[TextIO]:
    """Yield a file that gets its name when it is complete; raise OSError that names `path`."""
    scratch = path.with_name(f".{path.name}.part")
    try:
        with scratch.open("w", encoding="utf-8", newline="") as file:
            yield file
        scratch.rename(path)
    except OSError as error:
        with suppress(OSError):
            scratch.unlink()
        error.filename = str(path)
        raise


if __name__ == "__main__":
    sys.exit(main())
