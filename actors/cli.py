"""The argument parser of all commands, and their handling of a closed, full or unread stdout.

A mistake in a command line is reported in one line.  The module imports little more than argparse,
because evaluators' children and scripts begin with it.
"""

from __future__ import annotations

import argparse
import difflib
import io
import os
import shlex
import signal
import sys
from pathlib import PurePath
from typing import NoReturn

from actors.commands import PROGRAM
from actors.exit_status import ExitStatus

UTF_8 = ("utf-8", "utf8")


class OneLineParser(argparse.ArgumentParser):
    """argparse, but a mistake is one line instead of a page; status 2."""

    refusal: type[Exception] | None = None  # raised with the line, if the caller prints it

    def error(self, message: str) -> NoReturn:
        """Report a mistake in the command line."""
        line = f"{message.removeprefix('argument ')}{self._nearest(message)}"
        line = f"{line}; see {self.prog} --help"
        if self.refusal is not None:
            raise self.refusal(line)
        self.exit(ExitStatus.USAGE, f"{short_name(self.prog)}: {line}\n")

    def _nearest(self, message: str) -> str:
        """Return which flag an unknown one is most like; "" where none is."""
        known = [flag for flag in self._option_string_actions if flag.startswith("--")]
        words = message.split() if message.startswith("unrecognized") else []
        flags = [word.partition("=")[0] for word in words if word.startswith("--")]
        near = [found for flag in flags[:1] for found in difflib.get_close_matches(flag, known, 1)]
        return f" (did you mean {near[0]}?)" if near else ""


class UsageError(Exception):
    """The user's request can't be carried out; the message is one line with reason and remedy."""


def ensure_std_streams() -> None:
    """Open the standard streams that the caller closed: the next file would get their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
    show_any_character()


def show_any_character() -> None:
    """Show a question mark for what the streams' encoding lacks, such as µ and × in ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in UTF_8:
            stream.reconfigure(errors="replace")


def exit_when_reader_closes() -> None:
    """End this process silently when the reader of its output is gone, and at Ctrl-C.

    Only for commands that read and print; a process that serves others must live on.
    """
    show_any_character()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def discard_unflushed_output() -> None:
    """Drop output that a full disk did not take, before the interpreter ends.

    Otherwise the interpreter would flush it again and end with an exit status of its own.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, stream.fileno())
            os.close(devnull)


def short_name(prog: str) -> str:
    """Return a command's short name.

    It is `tickets` for `python scripts/tickets.py new` and for `stark tickets new`, and `build` for
    `python -m a.b.build`.
    """
    parts = shlex.split(prog)
    if PurePath(parts[0]).name == PROGRAM:
        return (parts[1:] or [PROGRAM])[0]
    command = next((word for word in parts if "." in word), prog)
    return PurePath(command).name.removesuffix(".py").rpartition(".")[2]
