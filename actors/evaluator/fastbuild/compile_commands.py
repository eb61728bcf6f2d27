"""The compiler commands that torch itself would run, read from its build.ninja.

So every flag is torch's and the candidate's, in their order.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from actors.evaluator.fastbuild.compiler_process import Deadline, run_compiler
from protocol.values import Value

SHELL_SIGNS = frozenset(";|&<>`$\n")
FLAGS_WITH_VALUE = frozenset(["-MF", "-o"])
FLAGS_WITHOUT_VALUE = frozenset(["-MMD", "-MD", "-c"])


class CompileCommandsError(Exception):
    """torch's build file holds something that we don't understand."""


class CompileCommand(Value, frozen=True, kw_only=True):
    """One source to one object."""

    source: str
    output: str
    command: str  # as torch runs it
    compiler: str
    flags: tuple[str, ...]  # in order, without source, output and dependency files


class BuildCommands(Value, frozen=True, kw_only=True):
    """All that torch runs for one extension."""

    compilations: tuple[CompileCommand, ...]
    link: tuple[str, ...]


def split_command(command: str) -> list[str]:
    """Return the words of `command`; raise `CompileCommandsError` where a shell would do more."""
    if SHELL_SIGNS & set(command):
        raise CompileCommandsError("a flag needs a shell")
    try:
        return shlex.split(command)
    except ValueError as error:
        raise CompileCommandsError(f"a flag is quoted wrongly ({error})") from None


def read_commands(folder: Path, deadline: Deadline) -> BuildCommands:
    """Ask ninja for the commands in `folder`."""
    ran = run_compiler(["ninja", "-t", "commands"], folder, deadline)
    lines = [line for line in ran.output.splitlines() if line.strip()]
    if ran.status or len(lines) < 2:
        raise CompileCommandsError(f"ninja lists no commands: {ran.output[-200:]}")
    return BuildCommands(
        compilations=tuple(_compilation(line) for line in lines[:-1]),
        link=tuple(split_command(lines[-1])),
    )


def _compilation(command: str) -> CompileCommand:
    words = split_command(command)
    if "-c" not in words or "-o" not in words:
        raise CompileCommandsError("a step is no compilation")
    source = words[words.index("-c") + 1]
    flags = []
    rest = iter(words[1:])
    for word in rest:
        if word in FLAGS_WITH_VALUE:
            next(rest)
        elif word not in FLAGS_WITHOUT_VALUE and word != source:
            flags.append(word)
    return CompileCommand(
        source=source,
        output=words[words.index("-o") + 1],
        command=command,
        compiler=words[0],
        flags=tuple(flags),
    )


def with_folders_first(flags: tuple[str, ...], folders: list[Path]) -> list[str]:
    """Return `flags` with `folders` searched before every other -isystem, after the -I ones."""
    first = next((at for at, flag in enumerate(flags) if flag.startswith("-isystem")), len(flags))
    ours = [word for folder in folders for word in ("-isystem", str(folder))]
    return [*flags[:first], *ours, *flags[first:]]
