"""The runs of a table: one resumable supervisor run for each strategy, with many tasks.

All usage errors are found before the first run begins: a comparison takes hours, and a misspelt
last strategy must not end it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from actors.cli import UsageError
from actors.exit_status import ExitStatus
from actors.installation import supervisor
from actors.supervisor.cli import gpu_discovery, preflight, run_settings
from protocol import settings as settings_file
from protocol.settings import FILE_NAME, Settings
from scripts.tables.problems import KernelBenchProblem
from scripts.tables.result_files import RUN_FOLDER
from scripts.tables.result_rows import ProblemState, RunRows, rows_of_run
from scripts.tables.table_arguments import TableArguments


def check_runs(arguments: TableArguments, problems: Sequence[KernelBenchProblem]) -> None:
    """Raise UsageError if one of the runs could not begin or continue."""
    gpus = gpu_discovery.visible_gpus(os.environ)
    for strategy in arguments.strategies:
        run_arguments = arguments.supervisor_arguments(strategy)
        place = arguments.results_folder / strategy
        old = stored_settings(place)
        if old is None:
            check_empty(place)
            names = tuple(problem.task for problem in problems)
            new = run_settings.new_run_settings(run_arguments, names, os.environ, gpus)
        else:
            _check_same(place, old, problems)
            try:
                new = run_settings.resumed_run_settings(old, run_arguments)
            except UsageError as error:
                raise UsageError(
                    f"{place} holds another run: {error}, or choose another --results"
                ) from error
        new = preflight.check_models(new, os.environ, Path.cwd())
        preflight.check_device(new, gpus)


def serve_run(
    arguments: TableArguments, problems: Sequence[KernelBenchProblem], strategy: str
) -> ExitStatus:
    """Start or resume one strategy's run; return its exit status."""
    place = arguments.results_folder / strategy
    old = stored_settings(place)
    if old is None:
        with tempfile.TemporaryDirectory(prefix="kernelbench-") as folder:
            argv = arguments.arguments(strategy)
            for problem in problems:
                path = Path(folder) / f"{problem.task}.py"
                path.write_text(problem.source, encoding="utf-8")
                argv += ["--task", str(path)]
            return supervise([*argv, "--run-dir", str(place / RUN_FOLDER), "--keep-refused"])
    if is_over(place, arguments):
        return ExitStatus.NEGATIVE
    argv = arguments.arguments(strategy, only=run_settings.CHANGEABLE_ON_RESUME)
    return supervise([*argv, "--resume", str(place / RUN_FOLDER), "--keep-refused"])


def stored_settings(place: Path) -> Settings | None:
    """Return the settings of the run in `place`; None without a run."""
    if not (place / RUN_FOLDER / FILE_NAME).is_file():
        return None
    try:
        return settings_file.read(place / RUN_FOLDER)
    except ValueError as error:
        raise UsageError(f"--results: {error}") from error


def check_empty(place: Path) -> None:
    """Raise UsageError unless `place` is free for a run."""
    if place.exists() and not place.is_dir():
        raise UsageError(f"--results: {place} is a file: choose another")
    if place.is_dir() and any(place.iterdir()):
        raise UsageError(
            f"--results: {place} holds files that are not a run of this command: choose another"
        )


def _check_same(place: Path, old: Settings, problems: Sequence[KernelBenchProblem]) -> None:
    """Raise UsageError unless the run in `place` has exactly these problems."""
    requested = {problem.task: problem.source for problem in problems}
    stored = set(old.tasks)
    if set(requested) != stored:
        raise UsageError(
            f"--results: {place} holds a run of {len(stored)} problems, you ask for"
            f" {len(requested)} ({_difference(stored, set(requested))}): choose another --results"
        )
    for task, source in requested.items():
        if not _has_task(place, task, source):
            raise UsageError(
                f"--results: {task} in {place} is not the file that --root has now: choose another"
                " --results"
            )


def check_same_tasks(place: Path, names: Sequence[str], tasks: Mapping[str, str]) -> None:
    """Raise UsageError unless the run in `place` has exactly these tasks."""
    if set(names) != set(tasks):
        raise UsageError(f"{place} holds a run of other tasks: choose another --results")
    for name, source in tasks.items():
        if not _has_task(place, name, source):
            raise UsageError(
                f"the task {name} was another text in {place}: choose another --results"
            )


def _has_task(place: Path, name: str, source: str) -> bool:
    """Whether the run in `place` has a task with exactly this source."""
    copy = place / RUN_FOLDER / "tasks" / f"{name}.py"
    return copy.is_file() and copy.read_text(encoding="utf-8") == source


def _difference(stored: set[str], requested: set[str]) -> str:
    parts = []
    for label, tasks in (("not there", requested - stored), ("not asked for", stored - requested)):
        if tasks:
            more = f" and {len(tasks) - 1} more" if len(tasks) > 1 else ""
            parts.append(f"{min(tasks)}{more} {label}")
    return ", ".join(parts)


def is_over(place: Path, arguments: TableArguments) -> bool:
    """Whether the run in `place` has nothing left to do within the requested budget."""
    if stored_settings(place) is None:
        return False
    return has_nothing_left(rows_of_run(place / RUN_FOLDER), arguments.texts)


def has_nothing_left(run: RunRows, texts: Mapping[str, str]) -> bool:
    """Whether a run is over within the budget that `texts`, the settings as typed, ask for."""
    wanted = texts.get("search.budget", "")
    is_extended = bool(wanted) and int(wanted) > run.budget
    return not is_extended and all(row.state is not ProblemState.UNFINISHED for row in run.rows)


def supervise(argv: Sequence[str]) -> ExitStatus:
    """Run the supervisor with these arguments; return its exit status."""
    with forwarding_signals() as children:
        child = subprocess.Popen([*supervisor(), *argv])
        children.append(child)
        return _exit_status(child.wait())


def supervise_labelled(
    children: list[subprocess.Popen[bytes]], argv: Sequence[str], label: str
) -> ExitStatus:
    """Run the supervisor beside others, each line of its output after `label`.

    `children`: those of `forwarding_signals`, which only a main thread can call.
    """
    child = subprocess.Popen(
        [*supervisor(), *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    children.append(child)
    for line in child.stdout or ():
        print(f"{label}: {line.decode(errors='replace').rstrip()}", file=sys.stderr, flush=True)
    return _exit_status(child.wait())


def _exit_status(status: int) -> ExitStatus:
    try:
        return ExitStatus(status)
    except ValueError:  # the supervisor was killed
        return ExitStatus.FAULT


def _is_in_terminals_foreground() -> bool:
    """Whether Ctrl-C on the terminal goes to this process and its children alike."""
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # there is none
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)


@contextmanager
def forwarding_signals() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Forward signals to the supervisor, except a terminal's Ctrl-C, which it gets by itself."""
    children: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and _is_in_terminals_foreground():
            return
        for child in children:
            child.send_signal(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # A handler, not SIG_IGN: an ignored signal stays ignored in the program that is started.
    previous = [signal.signal(number, forward) for number in numbers]
    try:
        yield children
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)
