"""The command `stark` of an installed project: `stark --task t.py`, `stark doctor`, `stark build`.

Without a subcommand it is `supervisor.py`.  Each subcommand of `actors.commands.COMMANDS` runs that
command's module as its own program, with the rest of the command line.
"""

from __future__ import annotations

import difflib
import os
import runpy
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from actors.cli import discard_unflushed_output, exit_when_reader_closes
from actors.commands import BY_NAME, COMMAND_VARIABLE, COMMANDS, program_typed, typed_command
from actors.exit_status import ExitStatus
from actors.installation import SUPERVISOR


def main() -> int:
    """Run the command that is asked for; return the exit status if it does not exit by itself."""
    os.environ[COMMAND_VARIABLE] = program_typed(sys.argv[0])
    arguments = sys.argv[1:]
    word = arguments[0] if arguments and not arguments[0].startswith("-") else ""
    if word in BY_NAME:
        sys.argv = [typed_command(word), *arguments[1:]]
        runpy.run_module(BY_NAME[word].module, run_name="__main__", alter_sys=True)
        return 0
    if word:
        print(unknown(word), file=sys.stderr)
        return ExitStatus.USAGE
    supervise(arguments)
    return 0


def supervise(arguments: Sequence[str]) -> None:
    """Run `supervisor.py`; its help is followed by a list of the other commands.

    It is run by its path: another distribution, supervisord, has a package called `supervisor`.
    """
    try:
        runpy.run_path(str(SUPERVISOR), run_name="__main__")
    except SystemExit as exit_request:
        if not exit_request.code and set(arguments) & {"-h", "--help"}:
            exit_when_reader_closes()
            with suppress(OSError):  # no room for it; argparse, too, ends with 0 then
                print(overview(), flush=True)
            discard_unflushed_output()
        raise


def overview() -> str:
    """Return a line for each command other than the main job."""
    width = max(len(command.name) for command in COMMANDS)
    lines = [f"  {command.name:{width}}  {command.summary}" for command in COMMANDS]
    return "\n".join([f"\nother commands ({typed_command()} COMMAND --help says more):", *lines])


def unknown(word: str) -> str:
    """Return one line about a word that is not a command."""
    if Path(word).is_file():
        return (
            f"{typed_command()}: {word} is a file: give a task by its flag, {typed_command()} "
            f"--task {word}"
        )
    near = difflib.get_close_matches(word, BY_NAME, n=3, cutoff=0.5)
    expected = " or ".join(near) or f"one of {', '.join(BY_NAME)}"
    return (
        f"{typed_command()}: no command {word!r}, expected {expected}; see {typed_command()} --help"
    )


if __name__ == "__main__":
    sys.exit(main())
