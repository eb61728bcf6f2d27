"""The runs of a comparison: one resumable supervisor run for each variation and seed.

All usage errors are found before the first run begins, since a comparison takes hours.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from actors.cli import UsageError
from actors.exit_status import ExitStatus
from actors.supervisor.cli import gpu_discovery, preflight, run_settings
from actors.supervisor.earlier_references import earlier_references
from protocol.settings import FILE_NAME, Settings
from protocol.values import AGENT_ROLES
from scripts.comparison.comparison_arguments import ComparisonArguments, RunChoice
from scripts.tables.result_files import RUN_FOLDER
from scripts.tables.result_rows import RunRows, rows_of_run
from scripts.tables.strategy_runs import (
    check_empty,
    check_same_tasks,
    forwarding_signals,
    has_nothing_left,
    stored_settings,
    supervise,
    supervise_labelled,
)
from scripts.tables.table_arguments import BY_NAME

OF_REQUESTS = ("knowledge", "lessons", "prompts")  # settings of what a model is told
AGENT_RUNS_AT_ONCE = 8  # in the agents' phase; each has a coordinator and its agents


def check_runs(arguments: ComparisonArguments) -> None:
    """Raise UsageError if one of the runs could not begin or continue."""
    gpus = gpu_discovery.visible_gpus(os.environ)
    files = [preflight.read_task(path) for path in arguments.tasks]
    tasks = {task.name: task.source for task in files}
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
            earlier_references(arguments.references, new, files)
        else:
            check_same_tasks(place, old.tasks, tasks)
            try:
                new = run_settings.resumed_run_settings(old, run.supervisor_arguments())
            except UsageError as error:
                raise UsageError(
                    f"{place} holds another run: {error}, or choose another --results"
                ) from error
        _check_requests_are_read(run, new)
        preflight.check_device(preflight.check_models(new, os.environ, Path.cwd()), gpus)


def _check_requests_are_read(run: RunChoice, settings: Settings) -> None:
    """Raise UsageError where requests vary and the rule book answers, which reads none."""
    varied = [BY_NAME[name].flag for name, _ in run.variation.texts if name in OF_REQUESTS]
    models = {settings.model_of(role) for role in AGENT_ROLES}
    if varied and models == {"recipes"}:
        raise UsageError(
            f"--vary {varied[0][2:]}: --model recipes reads no requests, so all variations would"
            " be the same: give a model that reads them"
        )


def serve_runs(arguments: ComparisonArguments) -> ExitStatus:
    """Start or resume all runs; return the status of a run that ended the work early, or DONE.

    Runs with evaluators go one after the other, since they are timed.  Agents wait for their
    models, so their phase serves several runs at once.
    """
    runs = deque(enumerate(arguments.runs(), start=1))
    total = len(runs)

    def serve_waiting(serve: Callable[[Sequence[str], str], ExitStatus]) -> ExitStatus:
        """Serve runs until none waits or one ends the work; several threads may do this."""
        while runs:
            number, run = runs.popleft()
            print(f"run {number} of {total}: {run.label}", file=sys.stderr)
            command = run_command(arguments, run)
            status = serve(command, run.label) if command else ExitStatus.NEGATIVE
            if status in (ExitStatus.STOPPED, ExitStatus.FAULT, ExitStatus.USAGE):
                runs.clear()
                return status
        return ExitStatus.DONE

    if arguments.phase != "agents":
        return serve_waiting(lambda command, _label: supervise(command))
    workers = min(AGENT_RUNS_AT_ONCE, total)
    with forwarding_signals() as children, ThreadPoolExecutor(workers) as pool:
        serve = partial(supervise_labelled, children)
        ends = [pool.submit(serve_waiting, serve) for _ in range(workers)]
        return max(end.result() for end in ends)


def run_command(arguments: ComparisonArguments, run: RunChoice) -> list[str]:
    """Return the supervisor's arguments that start or resume a run; [] for one that is over."""
    place = arguments.results / run.folder / RUN_FOLDER
    if not (place / FILE_NAME).is_file():
        tasks = [word for path in arguments.tasks for word in ("--task", str(path))]
        measured = arguments.references or _measured_run(arguments)
        references = ["--references", str(measured)] if measured else []
        return [*run.argv(), *tasks, *references, "--run-dir", str(place), "--keep-refused"]
    if has_nothing_left(rows_of_run(place, any_task=True), run.texts):
        return []
    argv = run.argv(only=run_settings.CHANGEABLE_ON_RESUME)
    return [*argv, "--resume", str(place), "--keep-refused"]


def _measured_run(arguments: ComparisonArguments) -> Path | None:
    """Return a run of this comparison that has measured all tasks, for the runs after it."""
    varying = {setting for one in arguments.variations for setting, _ in one.texts}
    if varying & {"device", "rules.precision"}:  # a reference is measured for each of them
        return None
    for run in arguments.runs():
        rows = rows_of(arguments, run)
        if rows is not None and all(row.eager_us is not None for row in rows.rows):
            return arguments.results / run.folder / RUN_FOLDER
    return None


def rows_of(arguments: ComparisonArguments, run: RunChoice) -> RunRows | None:
    """Return the rows of a run; None before it has begun."""
    place = arguments.results / run.folder / RUN_FOLDER
    return rows_of_run(place, any_task=True) if has_begun(arguments, run) else None


def has_begun(arguments: ComparisonArguments, run: RunChoice) -> bool:
    """Whether there is such a run."""
    return (arguments.results / run.folder / RUN_FOLDER / FILE_NAME).is_file()
