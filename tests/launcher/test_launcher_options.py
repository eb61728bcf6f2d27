"""The file of --launch; every mistake in it is one line, exit status 2, nothing started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from process_template import run_process

from actors.launcher.backends import job_command
from actors.launcher.options import BackendKind, LaunchOptions

TOP = Path(__file__).parent.parent.parent


def check(folder: Path, kind: str, text: str | None) -> subprocess.CompletedProcess[str]:
    """Ask the launcher whether a file can be used, as the supervisor does."""
    file = folder / "fleet.toml"
    if text is not None:
        file.write_text(text)
    return subprocess.run(
        [sys.executable, "-P", "-m", "actors.launcher", "--check", "--launch", f"{kind}:{file}"],
        env={**os.environ, "PYTHONPATH": str(TOP)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("slurm", None, "can't read"),
        ("slurm", "jobs = ", "Invalid value"),
        ("slurm", "job = 3\n", "`job`"),
        ("slurm", "jobs = 0\n", "expected 1 or more"),
        ("slurm", 'hosts = ["a"]\n', "hosts are for ssh:FILE"),
        ("ssh", "jobs = 2\n", "ssh needs hosts"),
        ("ssh", 'hosts = ["-oProxyCommand=x"]\n', "can't begin with -"),
        ("ssh", 'jobs = 2\nhosts = ["a"]\n', "one job a host"),
        ("local", "[provider]\nx = 1\n", "[provider] is for batch systems"),
        ("local", 'project = "here"\n', "absolute path"),
        ("moon", "", "expected slurm:FILE"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(tmp_path: Path, kind: str, text: str | None, reason: str) -> None:
    """It names the flag and the file or the option, and nothing else is printed."""
    done = check(tmp_path, kind, text)

    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert reason in done.stderr
    assert done.stdout == ""


def test_the_evaluators_of_all_jobs_are_counted(tmp_path: Path) -> None:
    """The number decides how many expansions are in flight, so that all evaluators are busy."""
    assert "6\n" == check(tmp_path, "local", "jobs = 3\nevaluators = 2\n").stdout
    assert "2\n" == check(tmp_path, "ssh", 'hosts = ["a", "b"]\n').stdout


def test_without_parsl_the_line_names_the_package(tmp_path: Path) -> None:
    """The extra `cluster` is not part of the default installation."""
    (tmp_path / "parsl.py").write_text("raise ImportError('not here')\n")
    file = tmp_path / "fleet.toml"
    file.write_text("jobs = 1\n")
    path = os.pathsep.join([str(tmp_path), str(TOP)])
    done = subprocess.run(
        [sys.executable, "-P", "-m", "actors.launcher", "--check", "--launch", f"slurm:{file}"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert "pip install parsl" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_job_gets_the_path_of_its_ticket_and_never_its_content(tmp_path: Path) -> None:
    """All users of a node can read command lines; paths may have spaces and quotes."""
    options = LaunchOptions(evaluators=4, setup="module load cuda", project="/it's here")
    line = job_command(options, tmp_path / "a ticket.json", tmp_path)

    assert line.startswith("module load cuda\ncd ")
    assert f"--join '{tmp_path}/a ticket.json' --evaluators 4" in line
    assert """'/it'"'"'s here/supervisor.py'""" in line


def test_the_kinds_are_those_of_the_manual() -> None:
    """A user may type these kinds after --launch."""
    assert ["slurm", "k8s", "pbs", "lsf", "ssh", "local"] == [str(kind) for kind in BackendKind]


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["--launch", "local:fleet.toml"], "--launch needs --listen"),
        (["--launch", "fleet.toml"], "expected KIND:FILE"),
        (["--launch", "local:none.toml", "--listen", "tcp://127.0.0.1:17998"], "can't read"),
    ],
)
def test_the_command_refuses_in_one_line_and_makes_nothing(
    tmp_path: Path, argv: list[str], reason: str
) -> None:
    """A mistake in --launch has exit status 2 and makes no run folder."""
    (tmp_path / "fleet.toml").write_text("jobs = 1\n")
    (tmp_path / "t.py").write_text(
        "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
    )
    command = [str(TOP / "supervisor.py"), "--task", "t.py", "--run-dir", "run", *argv]
    status, lines = run_process(command, tmp_path)

    assert (2, 1) == (status, len(lines))
    assert reason in lines[0]
    assert not (tmp_path / "run").exists()
