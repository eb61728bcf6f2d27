"""The compiler commands that torch itself would run, read from its build.ninja.

So every flag is torch's or the candidate's, in their order.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from actors.evaluator.fastbuild.request.compiler_process import Deadline, run_compiler
from protocol.values import Value

SHELL_SIGNS = frozenset(";|&<>`$\n")
FLAGS_WITH_VALUE = frozenset(["-MF", "-o"])
FLAGS_WITHOUT_VALUE = frozenset(["-MMD", "-MD", "-c"])


class CompileCommandsError(Exception):
    """torch's build file holds a command that this module can't read."""


class CompileCommand(Value, frozen=True, kw_only=True):
    """The compilation of one source to one object."""

    source: str
    output: str
    command: str  # as torch runs it
    compiler: str
    flags: tuple[str, ...]  # in order, without source, output and dependency files


class BuildCommands(Value, frozen=True, kw_only=True):
    """All commands that torch runs for one extension."""

    compilations: tuple[CompileCommand, ...]
    link: tuple[str, ...]


def split_command(command: str) -> list[str]:
    """Return the arguments in `command`; raise `CompileCommandsError` if it needs a shell."""
    if SHELL_SIGNS & set(command):
        raise CompileCommandsError("a flag needs a shell")
    try:
        return shlex.split(command)
    except ValueError as error:
        raise CompileCommandsError(f"a flag is quoted wrongly ({error})") from None


def read_commands(folder: Path, deadline: Deadline) -> BuildCommands:
    """Ask ninja for the commands of the build.ninja in `folder`."""
    ran = run_compiler(["ninja", "-t", "commands"], folder, deadline)
    lines = [line for line in ran.output.splitlines() if line.strip()]
    if ran.status or len(lines) < 2:
        raise CompileCommandsError(f"ninja lists no commands: {ran.output[-200:]}")
    return BuildCommands(
        compilations=tuple(_compilation(line) for line in lines[:-1]),
        link=tuple(split_command(lines[-1])),
    )


def _compilation(command: str) -> CompileCommand:
    argv = split_command(command)
    if "-c" not in argv or "-o" not in argv:
        raise CompileCommandsError("a step of torch's build is not a compilation")
    source = argv[argv.index("-c") + 1]
    flags = []
    rest = iter(argv[1:])
    for argument in rest:
        if argument in FLAGS_WITH_VALUE:
            next(rest)
        elif argument not in FLAGS_WITHOUT_VALUE and argument != source:
            flags.append(argument)
    return CompileCommand(
        source=source,
        output=argv[argv.index("-o") + 1],
        command=command,
        compiler=argv[0],
        flags=tuple(flags),
    )


def with_folders_first(flags: tuple[str, ...], folders: list[Path]) -> list[str]:
    """Return `flags` with `folders` before the other -isystem folders, after the -I folders."""
    first = next((at for at, flag in enumerate(flags) if flag.startswith("-isystem")), len(flags))
    added = [argument for folder in folders for argument in ("-isystem", str(folder))]
    return [*flags[:first], *added, *flags[first:]]
