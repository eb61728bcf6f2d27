"""The command line's stages, each from its arguments to its exit status."""

from __future__ import annotations

import argparse
import io
import shlex
import sys
from pathlib import Path

from actors.adopt.check import check
from actors.adopt.check_process import check_apart, dropped_before
from actors.adopt.fit import PACKAGE, NoWinnerError, fit, has_winner
from actors.adopt.look import Look, is_unchanged, look, look_lines, refuse_outside
from actors.adopt.model_file import ModelFile
from actors.adopt.model_report import (
    no_winner_line,
    refused_lines,
    report_text,
    verdict_line,
)
from actors.adopt.stage_folder import StageFolder
from actors.adopt.take import take, take_parts
from actors.adopt.taken_tasks import Options, Take
from actors.adopt.task_runs import run_tasks
from actors.commands import typed_command
from actors.exit_status import ExitStatus


def run(arguments: argparse.Namespace) -> int:
    """Run the stage that was asked for; raise AdoptError with one line."""
    return int(STAGES[arguments.stage](arguments))


def say(line: str) -> None:
    """Print a line at once; without a reader (`| head`) the stage goes on: the files have it."""
    try:
        print(line, flush=True)  # noqa: T201  # the command talks to a person on stdout
    except BrokenPipeError:
        sys.stdout = io.StringIO()


def run_look(arguments: argparse.Namespace) -> int:
    """Look at a model."""
    file = ModelFile(arguments.model)
    folder = StageFolder(arguments.out or Path("adopt") / arguments.model.stem)
    result = look(file, folder, arguments.batches, arguments.regime, say)
    for line in look_lines(result):
        say(line)
    refuse_outside(result, arguments.max_outside)
    say(f"-> {folder.path}/look.json")
    return ExitStatus.DONE


def run_take(arguments: argparse.Namespace) -> int:
    """Take tasks."""
    options = _options(arguments)
    result = take(StageFolder(arguments.folder), options, say)
    if result.is_cap_reached:
        say(f"--cap {options.cap:,} bytes is reached: some calls were not recorded")
    if not result.tasks:
        look_result = StageFolder(arguments.folder).read("look.json", Look, "adopt.py look")
        say(f"no task: {'; '.join(refused_lines(result, look_result)) or 'nothing is worth one'}")
        return ExitStatus.NEGATIVE
    words = " ".join(f"--task {arguments.folder / task.file}" for task in result.tasks)
    say(f"next: {typed_command()} {words}")
    return ExitStatus.DONE


def run_fit(arguments: argparse.Namespace) -> int:
    """Make the package of the winners."""
    folder = StageFolder(arguments.folder)
    fit(folder, arguments.run, dict(arguments.winner), say)
    say(f"-> {folder.path}/{PACKAGE}: import {PACKAGE}; {PACKAGE}.fit(model)")
    return ExitStatus.DONE


def run_check(arguments: argparse.Namespace) -> int:
    """Check the whole model."""
    folder = StageFolder(arguments.folder)
    if arguments.in_process:
        check(folder, arguments.seconds, dropped_before(folder), say)
        return ExitStatus.DONE
    result = check_apart(folder, arguments.seconds, say)
    folder.write_text("report.md", report_text(folder))
    say(verdict_line(result))
    say(f"-> {folder.path}/report.md")
    is_faster = result.gain is not None and result.gain.low > 1.0
    return ExitStatus.DONE if is_faster else ExitStatus.NEGATIVE


def run_all(arguments: argparse.Namespace) -> int:
    """Run the stages that are not done yet."""
    folder = StageFolder(arguments.out or Path("adopt") / arguments.model.stem)
    if not folder.has("look.json") or not is_unchanged(folder, arguments.model):
        run_look(arguments)
    else:
        found = folder.read("look.json", Look, "adopt.py look")
        refuse_outside(found, arguments.max_outside)
    arguments.folder = folder.path
    if not folder.has("take.json"):
        run_take(arguments)
    taken = folder.read("take.json", Take, "adopt.py take")
    if not taken.tasks:
        return _nothing_to_fit(folder)
    _run_tasks(folder, taken, arguments)
    try:
        fit(folder, [], {}, say)
    except NoWinnerError:
        return _nothing_to_fit(folder)
    return run_check(arguments)


def _run_tasks(folder: StageFolder, taken: Take, arguments: argparse.Namespace) -> None:
    """Run the tasks, then those of the parts of tasks without a winner."""
    flags = shlex.split(arguments.supervisor)
    flags += ["--model", arguments.run_model] if arguments.run_model else []
    first = [task for task in taken.tasks if not task.part_of]
    kept_back = arguments.budget // 3 if any(task.has_parts for task in first) else 0
    run_tasks(folder, first, arguments.budget - kept_back, flags, say)
    parts = [task for task in taken.tasks if task.part_of]
    losers = [task.name for task in first if task.has_parts and not has_winner(folder, task)]
    if losers and not parts:
        say(f"no winner for {', '.join(losers)}: the parts are tried")
        parts = [
            task
            for task in take_parts(folder, _options(arguments), losers, say).tasks
            if task.part_of
        ]
    run_tasks(folder, parts, kept_back, flags, say)


def _options(arguments: argparse.Namespace) -> Options:
    return Options(
        top=arguments.top,
        min_share=arguments.min_share,
        patterns=tuple(arguments.at),
        cap=arguments.cap,
        max_gap=arguments.max_gap,
    )


def _nothing_to_fit(folder: StageFolder) -> int:
    """Say why the model stays as it is, also in the report."""
    folder.write_text("report.md", report_text(folder))
    say(no_winner_line(folder))
    say(f"-> {folder.path}/report.md")
    return ExitStatus.NEGATIVE


STAGES = {
    "look": run_look,
    "take": run_take,
    "fit": run_fit,
    "check": run_check,
    "all": run_all,
}
