"""The runs of the tasks: one `supervisor.py` run each, with a part of the budget."""

from __future__ import annotations

import itertools
import math
import signal
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from actors.adopt.look.look import Look
from actors.adopt.stage.errors import AdoptError
from actors.adopt.stage.exec_child import has_ended, started_child
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.stage.time_limit import UNLIMITED, TimeLimit, clock_text
from actors.adopt.take.taken_tasks import TakenTask
from actors.exit_status import ExitStatus
from actors.installation import supervisor
from protocol.directives import new_directive, submit_directive

LEAST_ATTEMPTS = 2  # fewer would not show whether there is something to win
LEAST_RUN_S = 20.0  # in less time a run has no verdict
CONFIRM_S = 120.0  # at the end of a run's time the best is judged again; at most half of the time
STOP_S = 45.0  # in which a run that is told to end has ended
SETTINGS = "stark.toml"  # a folder with it is a run
RESULT = "result.json"
THREADS = "OMP_NUM_THREADS"  # read by torch and by kernels
EARLY = "ended after"  # begins the note of a run that could not use its budget
LONGEST_NOTE = 200  # characters of why a run ended


def run_tasks(
    folder: StageFolder,
    tasks: Sequence[TakenTask],
    budget: int,
    flags: Sequence[str],
    say: Callable[[str], None],
    limit: TimeLimit = UNLIMITED,
) -> None:
    """Run each task; a run that has ended is left, one that was stopped goes on.

    Each gets a part of the time like its part of the attempts; what it leaves of either is for the
    others: a writer may say at its first attempt that it can't do this task.
    Runs that were not begun come first: one that was stopped may only confirm what it has.
    Raises AdoptError when no run could be begun.
    """
    waiting = list(zip(tasks, attempts_by_value(tasks, budget), strict=True))
    waiting.sort(key=lambda pair: has_begun(folder, pair[0]))
    failed: list[str] = []
    begun = 0
    while waiting:
        task, attempts = waiting[0]
        part = attempts / (sum(each for _, each in waiting) or 1)
        del waiting[0]
        run = run_of(folder, task)
        if not attempts:
            say(f"{task.name}: no attempts are left of the budget of {budget}")
        elif has_results(run):
            say(f"{task.name}: its run has ended: {run}")
        elif limit.left_s < LEAST_RUN_S:
            say(f"{task.name}: no time is left for its run (--max-minutes)")
        else:
            own = limit.part(max(part, LEAST_RUN_S / limit.left_s))
            say(f"{task.name}: {attempts} attempts{_time_words(own)}")
            failed += _run(folder, task, run, attempts, flags, own, say)
            begun += 1
        spare = attempts - judged_attempts(folder, task) if has_results(run) else 0
        if waiting and spare > 0:
            waiting[0] = (waiting[0][0], waiting[0][1] + spare)
    if failed and len(failed) == begun and not any(has_results(run_of(folder, t)) for t in tasks):
        raise AdoptError(f"no task could be run: {failed[0]}")


def _time_words(limit: TimeLimit) -> str:
    return "" if math.isinf(limit.left_s) else f", {clock_text(limit.left_s)} at most"


def _run(
    folder: StageFolder,
    task: TakenTask,
    run: Path,
    attempts: int,
    flags: Sequence[str],
    limit: TimeLimit,
    say: Callable[[str], None],
) -> list[str]:
    """Run a task until its run or its time is over; return why it could not be run, if so."""
    if (run / SETTINGS).exists():
        command = [*supervisor(), "--resume", str(run)]
    else:
        command = [*supervisor(), "--task", str(folder.path / task.file), "--budget", str(attempts)]
        # torch.compile's time of a module alone would decide nothing; the last flag holds.
        command += ["--run-dir", str(run), "--baselines", "eager", *flags]
    look = folder.read("look.json", Look, "adopt.py look")
    status = _status_within(command, thread_variables(look), run, limit, say)
    if status in (ExitStatus.DONE, ExitStatus.NEGATIVE) or (
        status == ExitStatus.STOPPED and not math.isinf(limit.left_s)
    ):
        return []
    reason = f"the run of {task.name} ended with status {status} ({run})"
    say(f"{reason}; the same command goes on with it")
    return [reason]


def thread_variables(look: Look) -> dict[str, str]:
    """Return the environment in which a run's judge has as many threads as the model's steps.

    The user's file may have set them, by torch.set_num_threads().
    """
    return {THREADS: str(look.threads)} if look.threads else {}


def _status_within(
    command: Sequence[str],
    variables: Mapping[str, str],
    run: Path,
    limit: TimeLimit,
    say: Callable[[str], None],
) -> int:
    """Run a command; when most of the time is over, the run confirms its best, and then ends."""
    with started_child(command, signal.SIGTERM, variables) as child:
        if has_ended(child, max(limit.left_s - CONFIRM_S, limit.left_s / 2)):
            return child.returncode
        if (run / SETTINGS).exists():
            say(f"{run.name}: the time for attempts is over, the best is judged again")
            submit_directive(run, new_directive("finish", by="adopt --max-minutes"))
            if has_ended(child, limit.left_s):
                return child.returncode
        say(f"{run.name}: its time is over; adopt ends the run and goes on with what it has")
        child.terminate()
        has_ended(child, STOP_S)
        return ExitStatus.STOPPED


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


def unfinished(folder: StageFolder, tasks: Sequence[TakenTask], budget: int) -> list[TakenTask]:
    """Return the tasks with attempts whose runs were not begun or were stopped."""
    attempts = attempts_by_value(tasks, budget)
    return [
        task
        for task, count in zip(tasks, attempts, strict=True)
        if count and not has_results(run_of(folder, task))
    ]


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
    early = next((note for note in result.get("notes", ()) if str(note).startswith(EARLY)), "")
    if not correct and early:
        return textwrap.shorten(str(early).rstrip("."), LONGEST_NOTE, placeholder=" …")
    return f"{attempts} attempts, {correct} correct{nearest}, none confirmed faster"


def judged_attempts(folder: StageFolder, task: TakenTask) -> int:
    """Return how many attempts of a task's run have a verdict."""
    return int((_result(run_of(folder, task)) or {}).get("attempts", 0))


def has_begun(folder: StageFolder, task: TakenTask) -> bool:
    """Whether there is a run of a task, over or not."""
    return (run_of(folder, task) / SETTINGS).exists()


def has_results(run: Path) -> bool:
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
