"""A command line whose every mistake is one line: what all commands here parse with.

And what they do about a stdout that was closed, that is full, or that nobody reads any more.

Costs argparse and nothing else to import: evaluators' children and scripts begin with it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from pathlib import PurePath
from typing import NoReturn

from actors.commands import PROGRAM
from actors.exit_status import ExitStatus


class OneLineParser(argparse.ArgumentParser):
    """argparse, but a mistake is one line instead of a page; status 2."""

    refusal: type[Exception] | None = None  # raised with the line, where a caller says it

    def error(self, message: str) -> NoReturn:
        """Refuse what was typed."""
        line = f"{message.removeprefix('argument ')}; see {self.prog} --help"
        if self.refusal is not None:
            raise self.refusal(line)
        self.exit(ExitStatus.USAGE, f"{_short(self.prog)}: {line}\n")


class UsageError(Exception):
    """What the user asked for can't be done; one line that says why and what to do."""


def ensure_std_streams() -> None:
    """Open what the caller closed of stdin, stdout and stderr: the next file would become it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123


def exit_when_reader_closes() -> None:
    """Let this process end without a word when its reader has gone, as other commands do.

    At a Ctrl-C, too.  For those that only read: who serves something lives on.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def discard_unflushed_output() -> None:
    """Give up what a full disk did not take of our own output, before the interpreter ends.

    It would try once more, and end with a status of its own.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _short(prog: str) -> str:
    """Return `tickets` for `python scripts/tickets.py new`, `build` for `python -m a.b.build`.

    And `tickets` for `stark tickets new`.
    """
    words = shlex.split(prog)
    if PurePath(words[0]).name == PROGRAM:
        return (words[1:] or [PROGRAM])[0]
    command = next((word for word in words if "." in word), prog)
    return PurePath(command).name.removesuffix(".py").rpartition(".")[2]
