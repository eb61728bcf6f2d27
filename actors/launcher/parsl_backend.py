"""Batch systems, by parsl's providers: Slurm, Kubernetes, PBS, LSF.

This is the only file that imports parsl, and it does so only when a run uses it:
`pip install parsl`.  The calls run the system's own commands (sbatch, squeue,
scancel) and wait for them.
"""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from actors.launcher.backends import SavedState, SubmissionRefusedError
from actors.launcher.job_controller import JobPhase
from actors.launcher.options import BackendKind, LaunchOptions

PROVIDERS = {
    BackendKind.SLURM: "SlurmProvider",
    BackendKind.K8S: "KubernetesProvider",
    BackendKind.PBS: "PBSProProvider",
    BackendKind.LSF: "LSFProvider",
}
MAX_REASON = 300  # characters
PARSL_HINT = "it needs parsl: pip install parsl"


class ParslBackend:
    """Jobs of one batch system."""

    def __init__(
        self, kind: BackendKind, options: LaunchOptions, line: str, folder: Path, known: SavedState
    ):
        """Raise ValueError with one line when this system can't be used as the options say."""
        self._line = line
        self._provider = _provider(kind, options)
        self._provider.script_dir = str(folder)
        states = importlib.import_module("parsl.jobs.states")
        self._parsl_error = importlib.import_module("parsl.errors").ParslError
        self._pending = (states.JobState.PENDING, states.JobState.HELD)
        for job, entry in known.items():
            status = states.JobStatus(states.JobState.UNKNOWN)
            self._provider.resources[job] = {**entry, "status": status}

    def submit(self) -> str:
        try:
            job = self._provider.submit(self._line, 1, "stark")
        except (self._parsl_error, OSError, subprocess.SubprocessError) as error:
            raise SubmissionRefusedError(_one_line(error)) from error
        if job is None:
            raise SubmissionRefusedError("the batch system returned no job name")
        return str(job)

    def phases(self) -> dict[str, JobPhase]:
        jobs = list(self._provider.resources)
        if not jobs:
            return {}
        try:
            states = self._provider.status(jobs)
        except (self._parsl_error, OSError, subprocess.SubprocessError, ValueError):
            return {}  # the system does not answer now, or parsl does not understand it
        found: dict[str, JobPhase] = {}
        for job, status in zip(jobs, states, strict=True):
            if status.terminal:
                found[job] = JobPhase.ENDED
                # The state of an ended job is not asked for again.
                self._provider.resources.pop(job, None)
            elif status.state in self._pending:
                found[job] = JobPhase.PENDING
            elif status.state.name == "RUNNING":
                found[job] = JobPhase.RUNNING
        return found

    def cancel(self, jobs: Iterable[str]) -> None:
        known = [job for job in jobs if job in self._provider.resources]
        if known:
            self._provider.cancel(known)

    def saved_state(self) -> SavedState:
        return {
            str(job): {name: value for name, value in entry.items() if isinstance(value, str | int)}
            for job, entry in self._provider.resources.items()
        }


def _provider(kind: BackendKind, options: LaunchOptions) -> Any:
    try:
        providers = importlib.import_module("parsl.providers")
    except ImportError as error:
        raise ValueError(f"--launch {kind}: {PARSL_HINT}") from error
    make = getattr(providers, PROVIDERS[kind])
    arguments = {**options.provider, "init_blocks": 0, "max_blocks": options.jobs}
    try:
        return make(**arguments)
    except _provider_errors() as error:
        raise ValueError(f"[provider]: {_one_line(error)}") from error


def _provider_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of providers that can't be used with their options."""
    found: list[type[Exception]] = [TypeError, ValueError, OSError, subprocess.SubprocessError]
    for module, name in (
        ("parsl.errors", "ParslError"),
        ("typeguard", "TypeCheckError"),
        ("kubernetes.config", "ConfigException"),
    ):
        with suppress(ImportError):
            found.append(getattr(importlib.import_module(module), name))
    return tuple(found)


def _one_line(error: BaseException) -> str:
    line = " ".join(str(error).split()) or type(error).__name__
    return line[:MAX_REASON]
