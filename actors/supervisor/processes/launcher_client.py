"""`--launch` as the supervisor sees it: a process that keeps the number of jobs.

The launcher is a package of its own, and only its process imports parsl: a second one checks
whether a file can be used.  The supervisor reads the state of the jobs from `launch.json`.
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
    """The part of the launcher's record that the supervisor reads."""

    words: str = ""


class LaunchNews:
    """The state of the jobs, reported when it changes."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / LAUNCH_RECORD_FILE
        self._read_stat = self._file_stat()
        self._reported = ""

    def changed_summary(self) -> str:
        """Return the summary of the jobs if it is another one than before, else nothing."""
        stat = self._file_stat()
        if stat == self._read_stat:
            return ""
        self._read_stat = stat
        try:
            words = msgspec.json.decode(self._path.read_bytes(), type=LaunchRecord).words
        except (OSError, ValueError):
            return ""
        if words == self._reported:
            return ""
        self._reported = words
        return words

    def _file_stat(self) -> tuple[int, int]:
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
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise UsageError(lines[-1] if lines else f"--launch {launch}: it can't be used")
    return int(done.stdout)


def launcher_command(launch: str, run_dir: Path) -> tuple[str, ...]:
    """Return the launcher's command line."""
    module = (sys.executable, "-P", "-m", "actors.launcher", "--launch", launch)
    return (*module, "--ticket", str(run_dir / TICKET_FILE), "--run-dir", str(run_dir))
