"""The runs of a comparison: one resumable supervisor run for each variation and seed.

All usage errors are found before the first run begins, since a comparison takes hours.
"""

from __future__ import annotations

import os
from pathlib import Path

from actors.cli import UsageError
from actors.exit_status import ExitStatus
from actors.supervisor.cli import gpu_discovery, preflight, run_settings
from protocol.settings import FILE_NAME
from scripts.comparison.comparison_arguments import ComparisonArguments, RunChoice
from scripts.tables.result_files import RUN_FOLDER
from scripts.tables.result_rows import RunRows, rows_of_run
from scripts.tables.strategy_runs import (
    check_empty,
    has_nothing_left,
    stored_settings,
    supervise,
)


def check_runs(arguments: ComparisonArguments) -> None:
    """Raise UsageError if one of the runs could not begin or continue."""
    gpus = gpu_discovery.visible_gpus(os.environ)
    tasks = {task.name: task.source for task in map(preflight.read_task, arguments.tasks)}
    if len(tasks) < len(arguments.tasks):
        raise UsageError("--task: two files have the same name")
    for run in arguments.runs():
        place = arguments.results / run.folder
        old = stored_settings(place)
        if old is None:
            check_empty(place)
            new = run_settings.new_run_settings(
                run.supervisor_arguments(), tuple(tasks), os.environ, gpus
            )
        else:
            _check_same_tasks(place, old.tasks, tasks)
            try:
                new = run_settings.resumed_run_settings(old, run.supervisor_arguments())
            except UsageError as error:
                raise UsageError(
                    f"{place} holds another run: {error}, or choose another --results"
                ) from error
        preflight.check_device(preflight.check_models(new, os.environ, Path.cwd()), gpus)


def serve_run(arguments: ComparisonArguments, run: RunChoice) -> ExitStatus:
    """Start or resume one run; return its exit status."""
    place = arguments.results / run.folder / RUN_FOLDER
    if not (place / FILE_NAME).is_file():
        tasks = [word for path in arguments.tasks for word in ("--task", str(path))]
        return supervise([*run.argv(), *tasks, "--run-dir", str(place), "--keep-refused"])
    if has_nothing_left(rows_of_run(place, any_task=True), run.texts):
        return ExitStatus.NEGATIVE
    argv = run.argv(only=run_settings.CHANGEABLE_ON_RESUME)
    return supervise([*argv, "--resume", str(place), "--keep-refused"])


def rows_of(arguments: ComparisonArguments, run: RunChoice) -> RunRows | None:
    """Return the rows of a run; None before it has begun."""
    place = arguments.results / run.folder / RUN_FOLDER
    return rows_of_run(place, any_task=True) if (place / FILE_NAME).is_file() else None


def _check_same_tasks(place: Path, names: tuple[str, ...], tasks: dict[str, str]) -> None:
    """Raise UsageError unless the run in `place` has exactly these tasks."""
    if set(names) != set(tasks):
        raise UsageError(f"{place} holds a run of other tasks: choose another --results")
    for name, source in tasks.items():
        copy = place / RUN_FOLDER / "tasks" / f"{name}.py"
        if not copy.is_file() or copy.read_text(encoding="utf-8") != source:
            raise UsageError(
                f"the task {name} was another text in {place}: choose another --results"
            )
