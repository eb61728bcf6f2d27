"""The end of a run: writes its files, says the last lines, chooses the exit status."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping

from actors.exit_status import ExitStatus
from actors.supervisor.cli.flags import COMMAND
from actors.supervisor.reporting.report import html_report
from actors.supervisor.reporting.run_data import formatting, run_results, unit_costs
from actors.supervisor.reporting.run_data.run_reader import RunReader, checkpoint_database
from actors.supervisor.reporting.run_data.run_results import RunResults
from actors.supervisor.reporting.run_data.snapshot import Snapshot
from actors.supervisor.run_folder import RunFolder
from actors.supervisor.run_loop import EndKind, RunEnd
from protocol.settings import Settings


def exit_status_of(ending: RunEnd, snapshot: Snapshot, results: RunResults) -> ExitStatus:
    """Return the exit status of a run that ended like this."""
    if snapshot.status == "refused":
        return ExitStatus.USAGE
    if snapshot.status == "finished":
        return run_results.exit_status_of(results)
    if snapshot.status == "idle":
        return ExitStatus.DONE
    return ExitStatus.FAULT if ending.kind is EndKind.FAULT else ExitStatus.STOPPED


def finish_run(
    folder: RunFolder,
    settings: Settings,
    reader: RunReader,
    snapshot: Snapshot,
    ending: RunEnd,
    say: Callable[[str], None],
) -> tuple[ExitStatus, RunResults]:
    """Write the run's files and say how it ended; return its exit status and results."""
    results = run_results.run_results(snapshot, settings, reader.attempt_rows())
    status = exit_status_of(ending, snapshot, results)
    if folder.lost_part:  # nothing may be made in its stead
        reader.close()
        say(f"a fault: {ending.reason}")
        return ExitStatus.FAULT, results
    try:
        _write(folder, settings, reader, snapshot, results)
    except (OSError, sqlite3.OperationalError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        say(f"can't write the results into {folder.shown}: {reason}")
        if status is not ExitStatus.STOPPED:  # a stopped run writes them again when it is resumed
            status = ExitStatus.FAULT
    for line in _last_lines(folder, snapshot, ending, status):
        say(line)
    return status, results


def task_problems(snapshot: Snapshot, files: Mapping[str, str]) -> list[str]:
    """Return why tasks can't be measured, each line with the file's name in front."""
    lines = []
    for task in snapshot.tasks:
        if task.problem:
            file = files.get(task.name, task.name)
            problem = task.problem.removeprefix(f"{task.name}.py: ").removeprefix(f"{task.name}: ")
            lines.append(f"{file}: {problem}")
    return lines


def _write(
    folder: RunFolder,
    settings: Settings,
    reader: RunReader,
    snapshot: Snapshot,
    results: RunResults,
) -> None:
    if snapshot.tasks:
        for task in snapshot.tasks:
            if run_results.write_best(folder.path, reader, settings, task) is None:
                run_results.remove_unconfirmed(folder.path, snapshot, task)
        run_results.write_result(folder.path, results)
        html_report.write_report(folder.path)
    reader.close()
    checkpoint_database(folder.path)
    folder.remove_live_files()


def _last_lines(
    folder: RunFolder, snapshot: Snapshot, ending: RunEnd, status: ExitStatus
) -> list[str]:
    lines = []
    for task in snapshot.tasks:
        lines.append(formatting.best_line(task))
        if task.best is not None:
            best = run_results.best_file(folder.path, task.name, len(snapshot.tasks))
            lines[-1] += f" -> {folder.shown}/{best.name}" if best.exists() else ""
        lines += [f"{task.name}: {note}" for note in task.notes]
        if task.other_devices:
            lines.append(f"{task.name}: ranked by {formatting.ranking_device(task)}")
    if snapshot.person:
        lines.append(f"steered: {formatting.person_line(snapshot.person)}")
    if snapshot.tasks:
        lines.append(f"spent {unit_costs.spent_line(snapshot.tasks)}")
        if (folder.path / html_report.FILE_NAME).exists():  # not where the disk is full
            lines.append(f"report {folder.shown}/{html_report.FILE_NAME}")
    if snapshot.status == "idle":
        lines.append(f"not finished: {snapshot.reason}")
    elif status in (ExitStatus.STOPPED, ExitStatus.FAULT):
        blocked = snapshot.status == "blocked"
        reason = snapshot.reason if blocked else ending.reason or snapshot.reason
        word = "a fault" if status is ExitStatus.FAULT else "not finished"
        lines.append(f"{word}: {reason}" if reason else word)
    if status in (ExitStatus.STOPPED, ExitStatus.FAULT) or snapshot.status == "idle":
        lines.append(f"resume with: {COMMAND} --resume {folder.quoted}")
    return lines
