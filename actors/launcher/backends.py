"""A backend runs jobs: the launcher submits them, reads their phases, cancels them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from actors.launcher.job_controller import JobPhase
from actors.launcher.options import LaunchOptions

SavedState = Mapping[str, Mapping[str, str | int]]  # job -> what its backend must know about it


class SubmissionRefusedError(Exception):
    """The backend takes no job; one line says why."""


class Backend(Protocol):
    """A batch system, or a set of hosts."""

    def submit(self) -> str:
        """Start one job that joins the run; return its name or raise `SubmissionRefusedError`."""
        ...

    def phases(self) -> dict[str, JobPhase]:
        """Return the known phases of the jobs; a job may be missing."""
        ...

    def cancel(self, jobs: Iterable[str]) -> None:
        """Ask these jobs to end."""

    def saved_state(self) -> SavedState:
        """Return what a later launcher must know to control these jobs."""
        ...


def job_command(options: LaunchOptions, ticket: Path, folder: Path) -> str:
    """Return the shell line of a job; it holds the path of the ticket, never its content."""
    supervisor = f"{options.project}/supervisor.py"
    argv = [options.python, supervisor, "--join", options.ticket or str(ticket)]
    if options.evaluators is not None:
        argv += ["--evaluators", str(options.evaluators)]
    change_folder = f"cd {shlex.quote(options.folder or str(folder))}"
    setup = [options.setup] if options.setup else []
    # exec: the signal that ends a job reaches the supervisor, which hands its leases back.
    return "\n".join([*setup, f"{change_folder} && exec {shlex.join(argv)}"])
