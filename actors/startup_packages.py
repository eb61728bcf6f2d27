"""The first check of a command: this Python is new enough and has the project's packages.

It runs before all imports that are not of the standard library, so that a shell whose `python` is
not the one of .venv gets one line, not a traceback.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

OLDEST_PYTHON = (3, 11)
IMPORTED = ("torch", "zmq", "msgspec", "structlog", "rich", "jinja2")  # by every run
USAGE = 2  # ExitStatus.USAGE; enum takes long to import
ROOT = Path(__file__).resolve().parents[1]


def end_without_packages() -> None:
    """End the process with one line and status 2 where this Python can't run the project."""
    problem = _problem()
    if problem:
        sys.stderr.write(f"{sys.executable} {problem}; {_remedy(ROOT)}\n")
        raise SystemExit(USAGE)


def _problem() -> str:
    if sys.version_info < OLDEST_PYTHON:
        version = ".".join(map(str, sys.version_info[:3]))
        return f"is Python {version}, and {'.'.join(map(str, OLDEST_PYTHON))} or newer is needed"
    missing = [name for name in IMPORTED if find_spec(name) is None]
    return f"does not have {', '.join(missing)}" if missing else ""


def _remedy(root: Path) -> str:
    own = root / ".venv" / "bin" / "python"
    if own.exists() and Path(sys.prefix) != root / ".venv":
        return f"use {own}"
    return "`make doctor` sets up .venv, whose bin/python has all that is needed"
