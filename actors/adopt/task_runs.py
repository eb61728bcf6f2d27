"""The runs of the tasks: one `supervisor.py` run each, with a part of the budget."""

from __future__ import annotations

import itertools
import signal
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from actors.adopt.errors import AdoptError
from actors.adopt.exec_child import run_child
from actors.adopt.stage_folder import StageFolder
from actors.adopt.taken_tasks import TakenTask
from actors.exit_status import ExitStatus
from actors.installation import supervisor

LEAST_ATTEMPTS = 2  # fewer would not show whether there is something to win
SETTINGS = "stark.toml"  # a folder with it is a run
RESULT = "result.json"
LONGEST_NOTE = 200  # characters of why a run ended


def run_tasks(
    folder: StageFolder,
    tasks: Sequence[TakenTask],
    budget: int,
    flags: Sequence[str],
    say: Callable[[str], None],
) -> None:
    """Run each task; a run that has ended is left, one that was stopped goes on.

    Raises AdoptError when a run could not be begun, or was stopped.
    """
    for task, attempts in zip(tasks, attempts_by_value(tasks, budget), strict=True):
        if not attempts:
            say(f"{task.name}: no attempts are left of the budget of {budget}")
            continue
        run = run_of(folder, task)
        if has_ended(run):
            say(f"{task.name}: its run has ended: {run}")
            continue
        if (run / SETTINGS).exists():
            command = [*supervisor(), "--resume", str(run)]
        else:
            file = folder.path / task.file
            command = [*supervisor(), "--task", str(file), "--budget", str(attempts)]
            # torch.compile's time of a module alone would decide nothing; the last flag holds.
            command += ["--run-dir", str(run), "--baselines", "eager", *flags]
        say(f"{task.name}: {attempts} attempts")
        status = run_child(command, signal.SIGTERM)
        if status not in (ExitStatus.DONE, ExitStatus.NEGATIVE):
            raise AdoptError(
                f"the run of {task.name} ended with status {status} ({run}): the same command goes"
                " on"
            )


def attempts_by_value(tasks: Sequence[TakenTask], budget: int) -> list[int]:
    """Divide the attempts by what each task could win; the first tasks get what is left."""
    total = sum(task.free_share for task in tasks) or 1.0
    given = []
    left = budget
    for task in tasks:
        wanted = max(LEAST_ATTEMPTS, round(budget * task.free_share / total))
        given.append(min(wanted, left))
        left -= given[-1]
    if given:
        given[0] += left
    return given


def run_of(folder: StageFolder, task: TakenTask) -> Path:
    """Return the folder of a task's run: one with this very task, or a new one.

    A task that was taken again may have another text, and an older run is of no use for it.
    """
    runs = folder.path / "runs"
    source = (folder.path / task.file).read_bytes()
    for run in sorted(runs.glob("*")):
        stored = run / "tasks" / Path(task.file).name
        if stored.is_file() and stored.read_bytes() == source:
            return run
    later = (f"{task.name}-{number}" for number in itertools.count(2))
    names = itertools.chain([task.name], later)
    return next(runs / name for name in names if not (runs / name / SETTINGS).exists())


def run_outcome(folder: StageFolder, task: TakenTask) -> str:
    """Return what a task's run came to, as a clause."""
    result = _result(run_of(folder, task))
    if result is None:
        return "it was not run"
    closest = result.get("closest") or {}
    attempts, correct = result.get("attempts", 0), result.get("correct", 0)
    gain = closest.get("speedup_eager")
    nearest = f", the best {gain:.2f}×" if gain else ""
    if result.get("best"):
        return "a winner was found"
    if not correct and result.get("notes"):
        return textwrap.shorten(str(result["notes"][0]), LONGEST_NOTE, placeholder=" …")
    return f"{attempts} attempts, {correct} correct{nearest}, none confirmed faster"


def has_ended(run: Path) -> bool:
    """Whether a run has written its last results."""
    result = _result(run)
    return result is not None and result.get("status") == "finished"


def _result(run: Path) -> dict[str, Any] | None:
    """Return what result.json says of a run's one task; None where there is none yet."""
    try:
        tasks = msgspec.json.decode((run / RESULT).read_bytes())["tasks"]
        return dict(tasks[0])
    except (OSError, msgspec.DecodeError, KeyError, IndexError, TypeError, ValueError):
        return None
