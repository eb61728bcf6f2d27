"""The command line's stages, each from its arguments to its exit status."""

from __future__ import annotations

import argparse
from pathlib import Path

from actors.adopt.look import look, look_lines, refuse_outside
from actors.adopt.model_file import ModelFile
from actors.adopt.stage_folder import StageFolder
from actors.adopt.take import Options, take
from actors.commands import typed_command
from actors.exit_status import ExitStatus


def run(arguments: argparse.Namespace) -> int:
    """Run the stage that was asked for; raise AdoptError with one line."""
    return int(STAGES[arguments.stage](arguments))


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)  # noqa: T201  # the command talks to a person on stdout


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
    options = Options(
        top=arguments.top,
        min_share=arguments.min_share,
        patterns=tuple(arguments.at),
        cap=arguments.cap,
        max_gap=arguments.max_gap,
    )
    result = take(StageFolder(arguments.folder), options, say)
    if result.is_cap_reached:
        say(f"--cap {options.cap:,} bytes is reached: some calls were not recorded")
    if not result.tasks:
        say(
            "no task: "
            + (result.not_taken[0].reason if result.not_taken else "nothing is worth one")
        )
        return ExitStatus.NEGATIVE
    words = " ".join(f"--task {arguments.folder / task.file}" for task in result.tasks)
    say(f"next: {typed_command()} {words}")
    return ExitStatus.DONE


STAGES = {"look": run_look, "take": run_take}
