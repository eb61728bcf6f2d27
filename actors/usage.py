"""A command line whose every mistake is one line: what all commands here parse with.

Costs argparse and nothing else to import: evaluators' children and scripts begin with it.
"""

from __future__ import annotations

import argparse
from pathlib import PurePath
from typing import NoReturn

EXIT_USAGE = 2


class Parser(argparse.ArgumentParser):
    """argparse, but a mistake is one line instead of a page; status 2."""

    refusal: type[Exception] | None = None  # raised with the line, where a caller says it

    def error(self, message: str) -> NoReturn:
        """Refuse what was typed."""
        line = f"{message.removeprefix('argument ')}; see {self.prog} --help"
        if self.refusal is not None:
            raise self.refusal(line)
        self.exit(EXIT_USAGE, f"{_short(self.prog)}: {line}\n")


def _short(prog: str) -> str:
    """Return `tickets` for `python scripts/tickets.py new`, `build` for `python -m a.b.build`."""
    command = next((word for word in prog.split() if "." in word), prog)
    return PurePath(command).name.removesuffix(".py").rpartition(".")[2]
