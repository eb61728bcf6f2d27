"""The commands of this project: their names, their modules, and how each is typed.

An installed package has one command, `stark` (scripts/stark.py), and these are its subcommands; in
a checkout each is a file or a module. `stark` puts the name by which it was called into the
environment, so that hints and help texts, also of child processes, name the typed command.

It imports only the standard library.
"""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "stark"
COMMAND_VARIABLE = "STARK_COMMAND"  # how the shell calls `stark`; not set in a checkout


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command other than the main job."""

    name: str  # typed after `stark`
    module: str  # runs as `__main__`
    in_checkout: str  # typed in a checkout
    summary: str


MAIN_COMMAND = "python supervisor.py"
COMMANDS = (
    Command(
        name="doctor",
        module="scripts.doctor",
        in_checkout="python scripts/doctor.py",
        summary="say what this machine has and what is missing",
    ),
    Command(
        name="examples",
        module="scripts.examples",
        in_checkout="python scripts/examples.py",
        summary="list the example tasks, or copy them",
    ),
    Command(
        name="adopt",
        module="scripts.adopt",
        in_checkout="python scripts/adopt.py",
        summary="take tasks out of your own model, and put winners into it",
    ),
    Command(
        name="ship",
        module="scripts.ship",
        in_checkout="python scripts/ship.py",
        summary="make a package of winners that needs torch alone",
    ),
    Command(
        name="kernelbench",
        module="scripts.kernelbench",
        in_checkout="python scripts/kernelbench.py",
        summary="run KernelBench problems and print the tables",
    ),
    Command(
        name="compare",
        module="scripts.compare",
        in_checkout="python scripts/compare.py",
        summary="compare strategies, policies or models on tasks, over seeds",
    ),
    Command(
        name="evaluate",
        module="actors.evaluator",
        in_checkout="python -m actors.evaluator",
        summary="judge candidates by hand",
    ),
    Command(
        name="build",
        module="actors.evaluator.build",
        in_checkout="python -m actors.evaluator.build",
        summary="build one candidate by hand and show what took how long",
    ),
    Command(
        name="watch",
        module="scripts.watch",
        in_checkout="python scripts/watch.py",
        summary="show a run, live or ended, as a page in the browser",
    ),
    Command(
        name="story",
        module="scripts.story",
        in_checkout="python scripts/story.py",
        summary="tell what happened to one attempt of a run",
    ),
    Command(
        name="report",
        module="scripts.report",
        in_checkout="python scripts/report.py",
        summary="write a run's report.html again",
    ),
    Command(
        name="export",
        module="scripts.export",
        in_checkout="python scripts/export.py",
        summary="write a run's attempts, verdicts and calls as CSV or JSON",
    ),
    Command(
        name="replay",
        module="scripts.replay",
        in_checkout="python scripts/replay.py",
        summary="rebuild a run's tree from its records and compare",
    ),
    Command(
        name="steer",
        module="scripts.steer",
        in_checkout="python scripts/steer.py",
        summary="pause a run, pin, prune or boost a node, advise, inject, and more",
    ),
    Command(
        name="cards",
        module="scripts.cards",
        in_checkout="python scripts/cards.py",
        summary="list, choose and check knowledge cards; mine what runs taught",
    ),
    Command(
        name="tickets",
        module="scripts.tickets",
        in_checkout="python scripts/tickets.py",
        summary="list, make and revoke the tickets of a run",
    ),
    Command(
        name="chaos",
        module="scripts.chaos",
        in_checkout="python scripts/chaos.py",
        summary="kill and disturb whole runs at random and count what is lost",
    ),
)
BY_NAME = {command.name: command for command in COMMANDS}


def typed_command(name: str = "") -> str:
    """Return how a command is typed here; without a name, how the main job is."""
    program = os.environ.get(COMMAND_VARIABLE, "")
    if program:
        return f"{program} {name}".rstrip()
    return BY_NAME[name].in_checkout if name else MAIN_COMMAND


def with_typed_commands(text: str | None) -> str:
    """Return a help text that names each command as it is typed here."""
    named = text or ""
    # Longest first: `python -m actors.evaluator` is the beginning of another command.
    for command in sorted(COMMANDS, key=lambda one: -len(one.in_checkout)):
        named = named.replace(command.in_checkout, typed_command(command.name))
    return named


def program_typed(called: str) -> str:
    """Return how the shell calls `stark`, which was called by the path `called`."""
    path = Path(called)
    if path.name != PROGRAM:  # imported, not called
        return PROGRAM
    found = shutil.which(PROGRAM)
    return PROGRAM if found and Path(found).samefile(path) else shlex.quote(called)
