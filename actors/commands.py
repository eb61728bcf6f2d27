"""The commands of this project: their names, their modules, and how each is typed.

Installed by pip they are words of one command, `stark` (scripts/stark.py); in a checkout each is a
file or a module. `stark` puts the name by which it was called into the environment, so that
hints and help texts name what was typed, in child processes too.

Imports nothing but the standard library.
"""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "stark"
COMMAND_VARIABLE = "STARK_COMMAND"  # the shell's words for `stark`; not set in a checkout


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command beside the main job."""

    word: str  # typed after `stark`
    module: str  # runs as `__main__`
    in_checkout: str  # typed where nothing is installed
    does: str


MAIN_COMMAND = "python supervisor.py"
COMMANDS = (
    Command(
        word="doctor",
        module="scripts.doctor",
        in_checkout="python scripts/doctor.py",
        does="say what this machine has and what is missing",
    ),
    Command(
        word="examples",
        module="scripts.examples",
        in_checkout="python scripts/examples.py",
        does="list the example tasks, or copy them",
    ),
    Command(
        word="kernelbench",
        module="scripts.kernelbench",
        in_checkout="python scripts/kernelbench.py",
        does="run KernelBench problems and print the tables",
    ),
    Command(
        word="evaluate",
        module="actors.evaluator",
        in_checkout="python -m actors.evaluator",
        does="judge candidates by hand",
    ),
    Command(
        word="build",
        module="actors.evaluator.build",
        in_checkout="python -m actors.evaluator.build",
        does="build one candidate by hand and show what took how long",
    ),
    Command(
        word="story",
        module="scripts.story",
        in_checkout="python scripts/story.py",
        does="tell what happened to one attempt of a run",
    ),
    Command(
        word="report",
        module="scripts.report",
        in_checkout="python scripts/report.py",
        does="write a run's report.html again",
    ),
    Command(
        word="replay",
        module="scripts.replay",
        in_checkout="python scripts/replay.py",
        does="rebuild a run's tree from its records and compare",
    ),
    Command(
        word="tickets",
        module="scripts.tickets",
        in_checkout="python scripts/tickets.py",
        does="list, make and revoke the tickets of a run",
    ),
    Command(
        word="chaos",
        module="scripts.chaos",
        in_checkout="python scripts/chaos.py",
        does="kill and disturb whole runs at random and count what is lost",
    ),
)
BY_WORD = {command.word: command for command in COMMANDS}


def typed_command(word: str = "") -> str:
    """Return how a command is typed here; without a word, the main job."""
    program = os.environ.get(COMMAND_VARIABLE, "")
    if program:
        return f"{program} {word}".rstrip()
    return BY_WORD[word].in_checkout if word else MAIN_COMMAND


def with_typed_commands(text: str | None) -> str:
    """Return a help text that names each command as it is typed here."""
    named = text or ""
    # Longest first: `python -m actors.evaluator` begins another one.
    for command in sorted(COMMANDS, key=lambda one: -len(one.in_checkout)):
        named = named.replace(command.in_checkout, typed_command(command.word))
    return named


def program_typed(called: str) -> str:
    """Return the shell's words for `stark`, which was called by the path `called`."""
    path = Path(called)
    if path.name != PROGRAM:  # it was imported, not called
        return PROGRAM
    found = shutil.which(PROGRAM)
    return PROGRAM if found and Path(found).samefile(path) else shlex.quote(called)
