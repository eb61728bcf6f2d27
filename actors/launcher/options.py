"""The options in the file of `--launch KIND:FILE`, read and checked without parsl.

jobs = 8                 # the largest number at a time
evaluators = 1           # of each job; left out: one for each card of its node
setup = "module load cuda"
[provider]               # passed to parsl's provider unchanged
partition = "gpu"
walltime = "04:00:00"
"""

from __future__ import annotations

import os
import sys
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from actors.installation import ROOT
from protocol.user_files import read_text
from protocol.values import Value


class BackendKind(StrEnum):
    """The kinds of places where jobs run."""

    SLURM = "slurm"
    K8S = "k8s"
    PBS = "pbs"
    LSF = "lsf"
    SSH = "ssh"
    LOCAL = "local"


class LaunchOptions(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options in a file."""

    jobs: int = 1  # the largest number at a time; ssh: one a host by default
    evaluators: int | None = None
    python: str = sys.executable  # as the node sees it
    project: str = str(ROOT)  # the folder of supervisor.py, as the node sees it
    folder: str = ""  # a job's working folder, for its logs, too; "": the run's own launch/
    ticket: str = ""  # as the node sees it; "": the run's own
    setup: str = ""  # lines of shell before anything else
    hosts: tuple[str, ...] = ()  # ssh only
    ssh: tuple[str, ...] = ("ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15")
    provider: dict[str, Any] = msgspec.field(default_factory=dict)  # parsl's own options


def split_launch(launch: str) -> tuple[BackendKind, Path]:
    """Return the two parts of `KIND:FILE`; raise ValueError with one line."""
    kind, colon, file = launch.partition(":")
    if not colon or not file or kind not in set(BackendKind):
        raise ValueError(
            f"expected {', '.join(f'{name}:FILE' for name in BackendKind)}, got {launch!r}"
        )
    return BackendKind(kind), Path(file)


def read_options(kind: BackendKind, path: Path) -> LaunchOptions:
    """Return the options in a file; raise ValueError with one line."""
    try:
        table = tomllib.loads(read_text(path))
        options = msgspec.convert(table, LaunchOptions)
    except OSError as error:
        raise ValueError(f"can't read it: {error.strerror}") from error
    if kind is BackendKind.SSH and "jobs" not in table:
        options = msgspec.structs.replace(options, jobs=len(options.hosts))
    problem = _problem(kind, options)
    if problem:
        raise ValueError(problem)
    return options


def _problem(kind: BackendKind, options: LaunchOptions) -> str:
    if kind is BackendKind.SSH and not options.hosts:
        return 'ssh needs hosts = ["gpu1", "me@gpu2"]'
    if kind is not BackendKind.SSH and options.hosts:
        return f"hosts are for ssh:FILE, not for {kind}:FILE"
    if kind in (BackendKind.SSH, BackendKind.LOCAL) and options.provider:
        return f"[provider] is for batch systems, not for {kind}:FILE"
    if options.jobs < 1:
        return f"jobs = {options.jobs}: expected 1 or more"
    if kind is BackendKind.SSH and options.jobs > len(options.hosts):
        return f"jobs = {options.jobs}, but there are {len(options.hosts)} hosts: one job a host"
    if options.evaluators is not None and options.evaluators < 1:
        return f"evaluators = {options.evaluators}: expected 1 or more"
    if any(host.startswith("-") for host in options.hosts):
        return "a host's name can't begin with -"
    if not os.path.isabs(options.project):  # noqa: PTH117  # a path on the node
        return f"project = {options.project!r}: expected an absolute path"
    return ""
