"""Where jobs run, as the launcher sees it: submit, look, cancel."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from actors.launcher.job_controller import JobPhase
from actors.launcher.options import LaunchOptions

SavedState = Mapping[str, Mapping[str, str | int]]  # job -> what its place needs to know of it


class SubmissionRefusedError(Exception):
    """The place takes no job; one line that says why."""


class Backend(Protocol):
    """A batch system, or a set of hosts."""

    def submit(self) -> str:
        """Start one job that joins the run; return its name.  Raises `SubmissionRefusedError`."""
        ...

    def phases(self) -> dict[str, JobPhase]:
        """Return what is known of the jobs now; nothing where nothing is known."""
        ...

    def cancel(self, jobs: Iterable[str]) -> None:
        """Ask for the end of these jobs."""

    def saved_state(self) -> SavedState:
        """Return what a later launcher must know of these jobs to look after them."""
        ...


def job_command(options: LaunchOptions, ticket: Path, folder: Path) -> str:
    """Return the shell line that a job runs; the ticket is a file's path, never its content."""
    supervisor = f"{options.project}/supervisor.py"
    argv = [options.python, supervisor, "--join", options.ticket or str(ticket)]
    if options.evaluators is not None:
        argv += ["--evaluators", str(options.evaluators)]
    stand = f"cd {shlex.quote(options.folder or str(folder))}"
    setup = [options.setup] if options.setup else []
    # exec: the signal that ends a job is the supervisor's, which then hands its leases back.
    return "\n".join([*setup, f"{stand} && exec {shlex.join(argv)}"])
