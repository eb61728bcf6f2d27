"""The compiler commands that torch itself would run, read from its build.ninja.

So every flag is torch's and the candidate's, in their order.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from actors.evaluator.fastbuild.process import Deadline, run
from protocol.values import Value

SHELL_SIGNS = frozenset(";|&<>`$\n")
WITH_VALUE = frozenset(["-MF", "-o"])
ALONE = frozenset(["-MMD", "-MD", "-c"])


class Unreadable(Exception):
    """torch's build file holds something that we don't understand."""


class Compilation(Value, frozen=True, kw_only=True):
    """One source to one object."""

    source: str
    output: str
    command: str  # as torch runs it
    compiler: str
    flags: tuple[str, ...]  # in order, without source, output and dependency files


class Commands(Value, frozen=True, kw_only=True):
    """All that torch runs for one extension."""

    compilations: tuple[Compilation, ...]
    link: tuple[str, ...]


def split(command: str) -> list[str]:
    """Return the words of `command`; raise `Unreadable` where a shell would do more."""
    if SHELL_SIGNS & set(command):
        raise Unreadable("a flag needs a shell")
    try:
        return shlex.split(command)
    except ValueError as error:
        raise Unreadable(f"a flag is quoted wrongly ({error})") from None


def read(folder: Path, deadline: Deadline) -> Commands:
    """Ask ninja for the commands in `folder`."""
    ran = run(["ninja", "-t", "commands"], folder, deadline)
    lines = [line for line in ran.output.splitlines() if line.strip()]
    if ran.status or len(lines) < 2:
        raise Unreadable(f"ninja lists no commands: {ran.output[-200:]}")
    return Commands(
        compilations=tuple(_compilation(line) for line in lines[:-1]), link=tuple(split(lines[-1]))
    )


def _compilation(command: str) -> Compilation:
    words = split(command)
    if "-c" not in words or "-o" not in words:
        raise Unreadable("a step is no compilation")
    source = words[words.index("-c") + 1]
    flags = []
    rest = iter(words[1:])
    for word in rest:
        if word in WITH_VALUE:
            next(rest)
        elif word not in ALONE and word != source:
            flags.append(word)
    return Compilation(
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
