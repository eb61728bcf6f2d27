"""Judge published winners again: `python -m scripts.tables.confirm_results FOLDER --root CHECKOUT`.

It is an ordinary run, RESULTS/run, whose model is a script with the published sources: one attempt
a problem, then the confirmation in fresh processes with the release checks, then torch.compile.
The same command continues a run that was stopped.  `confirmed.md` and `confirmed.json` have the
published figure of each winner beside the new one, also for a winner that is not correct any more.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from actors.cli import OneLineParser, UsageError
from actors.exit_status import ExitStatus
from actors.supervisor.cli import gpu_discovery, preflight
from actors.supervisor.cli.run_settings import CHANGEABLE_ON_RESUME
from actors.supervisor.reporting.run_data import run_results
from actors.supervisor.reporting.run_data.run_reader import RunReader, checkpoint_database
from actors.supervisor.reporting.run_data.snapshot import Snapshot
from protocol import settings as settings_file
from protocol.atomic_file import write_atomically
from protocol.settings import FILE_NAME
from scripts.tables import problems, run_description, strategy_runs
from scripts.tables.confirmation_text import (
    ConfirmationPage,
    ConfirmedWinner,
    confirmation_text,
    confirmed_winner,
    joined_page,
)
from scripts.tables.problems import origin_of
from scripts.tables.published_winners import PublishedWinner, read_winners
from scripts.tables.result_files import RUN_FOLDER
from scripts.tables.run_description import OF_ONE_MACHINE
from scripts.tables.table_arguments import BY_NAME, FIRST_LOOKS, FIRST_LOOKS_HELP, setting_text

COMMAND = "python -m scripts.tables.confirm_results"
TOP = Path(__file__).resolve().parents[2]
SCRIPT, PAGE, ROWS = "winners.jsonl", "confirmed.md", "confirmed.json"
# The supervisor's settings that this command passes on; the others make the run what it is.
PASSED_ON = (
    *("device", "evaluators", "tasks_at_once", "seed", "min_sandbox", "max_minutes"),
    *("rules.precision", "rules.baselines", "rules.profile", "listen", "launch"),
)
FIXED = ("--strategy", "sampling", "--budget", "1", "--planners", "0", "--debuggers", "0")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is left, write the page, print it; return the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        given = _parser().parse_args(argv)
        texts = {
            name: setting_text(BY_NAME[name], getattr(given, name), COMMAND)
            for name in PASSED_ON
            if getattr(given, name) is not None
        }
        winners = read_winners(given.folder, given.only)
        if not given.page:
            sources = _sources(winners, given.root, given.task)
            status = _serve(given.results, winners, sources, texts, first_looks=given.first_looks)
        elif (given.results / RUN_FOLDER / FILE_NAME).is_file():
            status = ExitStatus.DONE
        else:
            raise UsageError(f"--page: {given.results} has no run")
        if status is ExitStatus.USAGE:
            return int(status)  # the supervisor has printed the reason
        return _conclude(given, winners, texts, status, argv)
    except UsageError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return int(ExitStatus.USAGE)
    except (OSError, ValueError, sqlite3.DatabaseError) as error:
        print(f"the confirmation can't go on: {error}", file=sys.stderr)
        return int(ExitStatus.FAULT)


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog=COMMAND,
        description="Judge published winners again, in fresh processes and on your device.",
        epilog="Exit status: 0 the page is complete, 2 usage, 3 stopped (the same command"
        " continues), 4 a fault.",
        allow_abbrev=False,
    )
    parser.refusal = UsageError
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of NAME.py, as docs/results")
    parser.add_argument("--root", type=Path, metavar="CHECKOUT", help="a checkout of KernelBench")
    parser.add_argument(
        "--task", type=Path, action="append", default=[], metavar="FILE",
        help="the task of a winner that is not a problem of KernelBench",
    )  # fmt: skip
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="a winner, or a pattern"
    )
    parser.add_argument(
        "--results", type=Path, default=Path("results/confirmed"), metavar="DIR",
        help="the folder of the run and the page (default: results/confirmed)",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="the folder of the page (default: --results)"
    )
    parser.add_argument("--commit", default="", metavar="TEXT", help="for the page: of the judge")
    parser.add_argument(
        "--note", dest="notes", action="append", default=[], metavar="TEXT", help="a line of yours"
    )
    parser.add_argument(
        "--join", type=Path, action="append", default=[], metavar="RUN",
        help="for the page: another run on the same kind of device, or the confirmed.json of one;"
        " its confirmed winners count where this one has none, and its times of torch.compile",
    )  # fmt: skip
    parser.add_argument("--page", action="store_true", help="run nothing: write the page anew")
    parser.add_argument(FIRST_LOOKS, action="store_true", help=FIRST_LOOKS_HELP)
    for name in PASSED_ON:
        option = BY_NAME[name]
        parser.add_argument(option.flag, dest=name, metavar=option.metavar, help=option.help)
    return parser


# --- the run -------------------------------------------------------------------------------------


def _sources(
    winners: Sequence[PublishedWinner], root: Path | None, own: Sequence[Path]
) -> dict[str, str | Path]:
    """Return the task of each winner: a problem's text, or the file of another task."""
    files = {preflight.name_of(path): path for path in own}
    found: dict[str, str | Path] = {}
    for winner in winners:
        origin = origin_of(winner.task)
        if winner.task in files:
            found[winner.task] = files[winner.task]
        elif origin is None:
            raise UsageError(f"{winner.task} is not a problem of KernelBench: give --task FILE")
        elif root is None:
            raise UsageError(f"where is {winner.task}? give --root CHECKOUT, of KernelBench")
        else:
            (problem,) = problems.choose(root, [origin.level], str(origin.number))
            if problem.task != winner.task:
                raise UsageError(f"--root {root} has {problem.task} in the place of {winner.task}")
            found[winner.task] = problem.source
    return found


def _serve(
    results: Path,
    winners: Sequence[PublishedWinner],
    sources: dict[str, str | Path],
    texts: dict[str, str],
    *,
    first_looks: bool,
) -> ExitStatus:
    """Start or resume the run; return its exit status."""
    tasks = {
        name: preflight.read_task(given).source if isinstance(given, Path) else given
        for name, given in sources.items()
    }
    script = _script(results, winners)
    run_dir = results / RUN_FOLDER
    flags = ["--model", f"script:{script}", "--keep-refused", *([FIRST_LOOKS] * first_looks)]
    old = strategy_runs.stored_settings(results)
    if old is not None:
        strategy_runs.check_same_tasks(results, old.tasks, tasks)
        rest = {name: text for name, text in texts.items() if name in CHANGEABLE_ON_RESUME}
        return strategy_runs.supervise([*flags, *_words(rest), "--resume", str(run_dir)])
    if "device" not in texts:
        _refuse_without_card(winners)
    with tempfile.TemporaryDirectory(prefix="confirm-") as folder:
        for name, given in sources.items():
            path = given if isinstance(given, Path) else Path(folder) / f"{name}.py"
            if not isinstance(given, Path):
                path.write_text(given, encoding="utf-8")
            flags += ["--task", str(path)]
        return strategy_runs.supervise([*flags, *FIXED, *_words(texts), "--run-dir", str(run_dir)])


def _refuse_without_card(winners: Sequence[PublishedWinner]) -> None:
    """Raise UsageError where winners of a GPU would be judged on a processor, unasked."""
    hardware = [one.figures.hardware for one in winners if one.figures is not None]
    card = next((name for name in hardware if name.startswith("NVIDIA")), "")
    if card and not gpu_discovery.visible_gpus(os.environ):
        raise UsageError(
            f"these winners are of {card}, and no GPU that torch can use was found here: give"
            " --device cpu for this machine's processor, or --device cuda --evaluators 0 --listen"
            " ADDR for the GPUs of others"
        )


def _script(results: Path, winners: Sequence[PublishedWinner]) -> Path:
    """Write the script that answers with the published sources, or find it; return its path."""
    lines = [
        {"role": "coder", "task": one.task, "advice": "As published.", "code": one.source}
        for one in winners
    ]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    path = results / SCRIPT
    if path.is_file() and path.read_text(encoding="utf-8") != text:
        raise UsageError(f"{results} is of other winners, or of older ones: choose --results")
    try:
        results.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise UsageError(f"--results: {results} is a file: choose another") from error
    write_atomically(path, text)
    return path.resolve()


def _words(texts: dict[str, str]) -> list[str]:
    return [word for name, text in texts.items() for word in (BY_NAME[name].flag, text)]


# --- the page ------------------------------------------------------------------------------------


def _conclude(
    given: argparse.Namespace,
    winners: Sequence[PublishedWinner],
    texts: dict[str, str],
    status: ExitStatus,
    argv: Sequence[str],
) -> int:
    """Write and print the page; return the exit status of the whole command."""
    run_dir = given.results / RUN_FOLDER
    page = _page(run_dir, winners, _repeating_command(given, texts), given.commit, given.notes)
    for other in given.join:
        page = joined_page(page, _rows_of(other, winners))
    for read in (run_dir, *given.join):
        if read.is_dir():
            checkpoint_database(read)  # reading leaves files next to the database
    out = given.out or given.results
    out.mkdir(parents=True, exist_ok=True)
    rows = msgspec.json.format(msgspec.json.encode(page.winners), indent=2).decode()
    write_atomically(out / ROWS, f"{rows}\n")
    text = confirmation_text(page)
    write_atomically(out / PAGE, f"{text}\n")
    print(text)
    print(f"written to {out}: {PAGE}, {ROWS}", file=sys.stderr)
    if status is ExitStatus.FAULT:
        return int(status)
    if status is ExitStatus.STOPPED or any(one.is_open for one in page.winners):
        again = shlex.join(word for word in argv if word not in ("--page", FIRST_LOOKS))
        print(f"not complete; continue with: {COMMAND} {again}", file=sys.stderr)
        return int(ExitStatus.STOPPED)
    return int(ExitStatus.DONE)


def _page(
    run_dir: Path,
    winners: Sequence[PublishedWinner],
    command: str,
    commit: str,
    notes: Sequence[str],
) -> ConfirmationPage:
    reader = RunReader(run_dir)
    try:
        description = run_description.describe(run_dir, reader, reader.poll() or Snapshot())
    finally:
        reader.close()
    lines = run_description.judging_lines([description], command, commit)
    return ConfirmationPage(
        lines=(*lines, *(f"- {note}" for note in notes)), winners=_rows_of(run_dir, winners)
    )


def _rows_of(run_dir: Path, winners: Sequence[PublishedWinner]) -> tuple[ConfirmedWinner, ...]:
    """Return what a run, or the JSON file of a page, knows of each winner."""
    if run_dir.is_file():
        rows = msgspec.json.decode(run_dir.read_bytes(), type=list[ConfirmedWinner])
        known = {row.task: row for row in rows}
        return tuple(known.get(one.task, confirmed_winner(one, None, None)) for one in winners)
    if not (run_dir / FILE_NAME).is_file():
        raise UsageError(f"{run_dir} is no run")
    reader = RunReader(run_dir)
    try:
        snapshot = reader.poll() or Snapshot()
    finally:
        reader.close()
    if snapshot.person:
        raise UsageError(f"{run_dir} was steered by a person: judge the winners in another folder")
    found = run_results.run_results(snapshot, settings_file.read(run_dir)).tasks
    results = {one.task: one for one in found}
    states = {state.name: state for state in snapshot.tasks}
    return tuple(
        confirmed_winner(one, states.get(one.task), results.get(one.task)) for one in winners
    )


def _repeating_command(given: argparse.Namespace, texts: dict[str, str]) -> str:
    """Return the command without what is this machine's: paths, processes, limits."""
    folder = given.folder.resolve()
    words = [str(folder.relative_to(TOP)) if folder.is_relative_to(TOP) else folder.name]
    words += ["--root", "CHECKOUT"] if given.root is not None else []
    words += [word for path in given.task for word in ("--task", path.name)]
    words += [word for one in given.only for word in ("--only", one)]
    words += _words({name: text for name, text in texts.items() if name not in OF_ONE_MACHINE})
    return f"{COMMAND} {shlex.join(words)}"


if __name__ == "__main__":
    sys.exit(main())
