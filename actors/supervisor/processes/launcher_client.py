"""`--launch` as the supervisor sees it: a process that keeps jobs at their number.

What runs there is the launcher's own room, and a process of its own also to be asked whether a
file can be used: parsl is imported by nobody else.  How the jobs stand is read from `launch.json`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from actors.cli import UsageError
from actors.installation import module_path
from protocol.values import Value

TICKET_FILE = "launch.ticket.json"
LAUNCH_RECORD_FILE = "launch.json"
CHECK_S = 60.0


class LaunchRecord(Value, frozen=True, kw_only=True):
    """What is read of the launcher's record."""

    words: str = ""


class LaunchNews:
    """How the jobs stand, told when it changes."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / LAUNCH_RECORD_FILE
        self._seen = self._mark()
        self._told = ""

    def changed_summary(self) -> str:
        """Return a line when there is a new one."""
        mark = self._mark()
        if mark == self._seen:
            return ""
        self._seen = mark
        try:
            words = msgspec.json.decode(self._path.read_bytes(), type=LaunchRecord).words
        except (OSError, ValueError):
            return ""
        if words == self._told:
            return ""
        self._told = words
        return words

    def _mark(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_ino)


def max_evaluators(launch: str) -> int:
    """Return how many evaluators a `KIND:FILE` lends at most; raise UsageError with one line."""
    if not launch:
        return 0
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "actors.launcher", "--launch", launch, "--check"],
            env={**os.environ, "PYTHONPATH": module_path(os.environ)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CHECK_S,
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"--launch {launch}: no answer within {CHECK_S:.0f} s") from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise UsageError(said[-1] if said else f"--launch {launch}: it can't be used")
    return int(done.stdout)


def launcher_command(launch: str, run_dir: Path) -> tuple[str, ...]:
    """Return the launcher's command line."""
    module = (sys.executable, "-P", "-m", "actors.launcher", "--launch", launch)
    return (*module, "--ticket", str(run_dir / TICKET_FILE), "--run-dir", str(run_dir))
