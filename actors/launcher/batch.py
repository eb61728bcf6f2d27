"""Batch systems, by parsl's providers: Slurm, Kubernetes, PBS, LSF.

The only file that imports parsl, and only when it is asked: `pip install stark-kernels[cluster]`.
Its calls run the system's own commands (sbatch, squeue, scancel) and wait for them.
"""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from actors.launcher.keeper import Phase
from actors.launcher.options import Kind, Options
from actors.launcher.places import Memory, Refused

PROVIDERS = {
    Kind.SLURM: "SlurmProvider",
    Kind.K8S: "KubernetesProvider",
    Kind.PBS: "PBSProProvider",
    Kind.LSF: "LSFProvider",
}
EXTRA = "it needs parsl: pip install stark-kernels[cluster]"


class Batch:
    """Jobs of one batch system."""

    def __init__(self, kind: Kind, options: Options, line: str, folder: Path, known: Memory):
        """Raise ValueError with one line when this system can't be used as the options say."""
        self._line = line
        self._provider = _provider(kind, options)
        self._provider.script_dir = str(folder)
        states = importlib.import_module("parsl.jobs.states")
        self._failed = importlib.import_module("parsl.errors").ParslError
        self._pending = (states.JobState.PENDING, states.JobState.HELD)
        for job, entry in known.items():
            status = states.JobStatus(states.JobState.UNKNOWN)
            self._provider.resources[job] = {**entry, "status": status}

    def submit(self) -> str:
        try:
            job = self._provider.submit(self._line, 1, "stark")
        except (self._failed, OSError, subprocess.SubprocessError) as error:
            raise Refused(_one_line(error)) from error
        if job is None:
            raise Refused("the batch system gave no job's name")
        return str(job)

    def phases(self) -> dict[str, Phase]:
        jobs = list(self._provider.resources)
        if not jobs:
            return {}
        try:
            states = self._provider.status(jobs)
        except (self._failed, OSError, subprocess.SubprocessError, ValueError):
            return {}  # it does not answer now, or not in words that parsl knows
        found: dict[str, Phase] = {}
        for job, status in zip(jobs, states, strict=True):
            if status.terminal:
                found[job] = Phase.ENDED
                # What has ended is asked for no more.
                self._provider.resources.pop(job, None)
            elif status.state in self._pending:
                found[job] = Phase.PENDING
            elif status.state.name == "RUNNING":
                found[job] = Phase.RUNNING
        return found

    def cancel(self, jobs: Iterable[str]) -> None:
        known = [job for job in jobs if job in self._provider.resources]
        if known:
            self._provider.cancel(known)

    def memory(self) -> Memory:
        return {
            str(job): {word: value for word, value in entry.items() if isinstance(value, str | int)}
            for job, entry in self._provider.resources.items()
        }


def _provider(kind: Kind, options: Options) -> Any:
    try:
        providers = importlib.import_module("parsl.providers")
    except ImportError as error:
        raise ValueError(f"--launch {kind}: {EXTRA}") from error
    make = getattr(providers, PROVIDERS[kind])
    words = {**options.provider, "init_blocks": 0, "max_blocks": options.jobs}
    try:
        return make(**words)
    except _complaints() as error:
        raise ValueError(f"[provider]: {_one_line(error)}") from error


def _complaints() -> tuple[type[Exception], ...]:
    """Return what providers raise when they can't be used with the words that they were given."""
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
    said = " ".join(str(error).split()) or type(error).__name__
    return said[:300]
