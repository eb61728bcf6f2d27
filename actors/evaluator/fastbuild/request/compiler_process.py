"""One compiler run: in a process group of its own, until a deadline."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from protocol.values import Value


class BuildTimeoutError(Exception):
    """A build took longer than its limit."""


class CompilerRun(Value, frozen=True, kw_only=True):
    """How a compiler ended."""

    status: int
    output: str  # stdout and stderr, interleaved
    seconds: float


class Deadline:
    """The time until which a whole build must be done."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._until = time.monotonic() + limit_s

    def left_s(self) -> float:
        """Return the seconds left; raise `BuildTimeoutError` when there are none."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise BuildTimeoutError(f"the build took longer than {self.limit_s:g} s")
        return left


def run_compiler(
    argv: Sequence[str],
    folder: Path,
    deadline: Deadline,
    environment: Mapping[str, str] | None = None,
) -> CompilerRun:
    """Run `argv` in `folder` to its end; at the deadline its whole process group is killed."""
    began = time.monotonic()
    left_s = deadline.left_s()
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    )
    try:
        output, _ = process.communicate(timeout=left_s)
    except subprocess.TimeoutExpired:
        raise BuildTimeoutError(f"the build took longer than {deadline.limit_s:g} s") from None
    finally:
        _kill_group(process)
    return CompilerRun(
        status=process.returncode,
        output=output.decode("utf-8", "replace"),
        seconds=time.monotonic() - began,
    )


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group if it still runs; a compiler driver's children would outlive it."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    process.wait()
