"""The command `stark` of an installed project: `stark --task t.py`, `stark doctor`, `stark build`.

Without a word it is `supervisor.py`; each word of `actors.commands.COMMANDS` runs that command's
module as its own program, with the rest of the command line.
"""

from __future__ import annotations

import difflib
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from actors.commands import BY_WORD, COMMAND_VARIABLE, COMMANDS, program_typed, typed_command
from actors.exit_status import ExitStatus
from actors.installation import SUPERVISOR


def main() -> int:
    """Become the command that is asked for; return the exit status where there is none."""
    os.environ[COMMAND_VARIABLE] = program_typed(sys.argv[0])
    arguments = sys.argv[1:]
    word = arguments[0] if arguments and not arguments[0].startswith("-") else ""
    if word in BY_WORD:
        sys.argv = [typed_command(word), *arguments[1:]]
        runpy.run_module(BY_WORD[word].module, run_name="__main__", alter_sys=True)
        return 0
    if word:
        print(unknown(word), file=sys.stderr)
        return ExitStatus.USAGE
    supervise(arguments)
    return 0


def supervise(arguments: Sequence[str]) -> None:
    """Become `supervisor.py`; its help is followed by a list of the other commands.

    By its path: another distribution, supervisord, has a package called `supervisor`.
    """
    try:
        runpy.run_path(str(SUPERVISOR), run_name="__main__")
    except SystemExit as ended:
        if not ended.code and set(arguments) & {"-h", "--help"}:
            print(overview())
        raise


def overview() -> str:
    """Return a line for each command beside the main job."""
    width = max(len(command.word) for command in COMMANDS)
    lines = [f"  {command.word:{width}}  {command.does}" for command in COMMANDS]
    return "\n".join([f"\nother commands ({typed_command()} COMMAND --help says more):", *lines])


def unknown(word: str) -> str:
    """Return one line about a word that is no command."""
    if Path(word).is_file():
        return (
            f"{typed_command()}: {word} is a file: give a task by its flag, {typed_command()} "
            f"--task {word}"
        )
    near = difflib.get_close_matches(word, BY_WORD, n=3, cutoff=0.5)
    expected = " or ".join(near) or f"one of {', '.join(BY_WORD)}"
    return (
        f"{typed_command()}: no command {word!r}, expected {expected}; see {typed_command()} --help"
    )


if __name__ == "__main__":
    sys.exit(main())
