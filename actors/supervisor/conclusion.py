"""The end of a run: files written, last lines said, exit status chosen."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping

from actors.supervisor import outcome, phrases, report
from actors.supervisor.flags import COMMAND
from actors.supervisor.folder import RunFolder
from actors.supervisor.ledger import Ledger, settle
from actors.supervisor.outcome import Exit, Results
from actors.supervisor.shift import Ending, Kind
from actors.supervisor.snapshot import Snapshot
from protocol.settings import Settings


def status(ending: Ending, snapshot: Snapshot, found: Results) -> Exit:
    """Return the exit status of a run that ended so."""
    if snapshot.status == "refused":
        return Exit.USAGE
    if snapshot.status == "finished":
        return outcome.exit_status(found)
    if snapshot.status == "idle":
        return Exit.IDLE
    return Exit.FAULT if ending.kind is Kind.FAULT else Exit.STOPPED


def conclude(
    folder: RunFolder,
    settings: Settings,
    ledger: Ledger,
    snapshot: Snapshot,
    ending: Ending,
    say: Callable[[str], None],
) -> tuple[Exit, Results]:
    """Write what the run leaves and say how it stands; return its status and results."""
    found = outcome.results(snapshot, settings)
    code = status(ending, snapshot, found)
    try:
        _write(folder, settings, ledger, snapshot, found)
    except (OSError, sqlite3.OperationalError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        say(f"can't write the results into {folder.shown}: {why}")
        if code is not Exit.STOPPED:  # who asked for a stop has it, and may resume
            code = Exit.FAULT
    for line in _lines(folder, snapshot, ending, code):
        say(line)
    return code, found


def problems(snapshot: Snapshot, files: Mapping[str, str]) -> list[str]:
    """Return why tasks can't be measured, each with the file's name in front."""
    lines = []
    for task in snapshot.tasks:
        if task.problem:
            file = files.get(task.name, task.name)
            said = task.problem.removeprefix(f"{task.name}.py: ").removeprefix(f"{task.name}: ")
            lines.append(f"{file}: {said}")
    return lines


def _write(
    folder: RunFolder, settings: Settings, ledger: Ledger, snapshot: Snapshot, found: Results
) -> None:
    if snapshot.tasks:
        for task in snapshot.tasks:
            if outcome.write_best(folder.path, ledger, settings, task) is None:
                outcome.remove_unconfirmed(folder.path, snapshot, task)
        outcome.write_result(folder.path, found)
        report.write(folder.path)
    ledger.close()
    settle(folder.path)
    folder.clean()


def _lines(folder: RunFolder, snapshot: Snapshot, ending: Ending, code: Exit) -> list[str]:
    lines = []
    for task in snapshot.tasks:
        lines.append(phrases.best_line(task))
        if task.best is not None:
            best = outcome.best_file(folder.path, task.name, len(snapshot.tasks))
            lines[-1] += f" -> {folder.shown}/{best.name}"
        lines += [f"{task.name}: {note}" for note in task.notes]
        if task.elsewhere:
            lines.append(f"{task.name}: ranked by {phrases.ranked_by(task)}")
    if snapshot.tasks:
        lines.append(f"spent {phrases.spend(phrases.total([t.spend for t in snapshot.tasks]))}")
        lines.append(f"report {folder.shown}/{report.FILE_NAME}")
    if snapshot.status == "idle":
        lines.append(f"not finished: {snapshot.reason}")
    elif code in (Exit.STOPPED, Exit.FAULT):
        why = snapshot.reason if snapshot.status == "blocked" else ending.why or snapshot.reason
        word = "a fault" if code is Exit.FAULT else "not finished"
        lines.append(f"{word}: {why}" if why else word)
    if code in (Exit.STOPPED, Exit.FAULT) or snapshot.status == "idle":
        lines.append(f"resume with: {COMMAND} --resume {folder.shown}")
    return lines
