"""`--launch slurm:FILE` against a real Slurm: daemons of its own, from Debian's packages."""

from __future__ import annotations

import importlib.util
import json
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from private_slurm import PrivateSlurm, missing
from supervisor_command import SUPERVISOR, Command

from actors.launcher import job_record
from actors.launcher.job_controller import JobPhase
from actors.launcher.job_record import JobRecord
from actors.launcher.options import BackendKind, LaunchOptions
from actors.launcher.parsl_backend import ParslBackend

WHY_NOT = missing() or (
    "" if importlib.util.find_spec("parsl") else "parsl is not installed: the extra `cluster`"
)
pytestmark = [
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[PrivateSlurm]:
    folder = tmp_path / "slurm"
    folder.mkdir()
    with PrivateSlurm(folder) as running:
        yield running


def test_a_launcher_that_was_killed_leaves_its_jobs_to_the_next(
    tmp_path: Path, slurm: PrivateSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`launch.json` holds enough to see a job run, to cancel it, and to see it end."""
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    options = LaunchOptions(provider={"walltime": "00:05:00", "exclusive": False})
    first = ParslBackend(BackendKind.SLURM, options, "sleep 100", tmp_path, {})
    job = first.submit()
    job_record.write_record(tmp_path, JobRecord(kind="slurm", jobs=dict(first.saved_state())))
    del first

    second = ParslBackend(
        BackendKind.SLURM, options, "sleep 100", tmp_path, job_record.read_record(tmp_path).jobs
    )
    wait(lambda: second.phases() == {job: JobPhase.RUNNING})
    second.cancel([job])
    wait(lambda: second.phases() == {job: JobPhase.ENDED})
    assert {} == second.saved_state()


def wait(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.2)


def test_an_option_unknown_to_parsl_is_one_line(tmp_path: Path, slurm: PrivateSlurm) -> None:
    """A mistake in [provider] is named, with exit status 2, without a traceback and a run."""
    Command(tmp_path)
    (tmp_path / "fleet.toml").write_text('[provider]\npartitoin = "gpu"\n')
    argv = ["--task", "chain.py", "--listen", "tcp://127.0.0.1:17999", "--run-dir", "run"]
    done = subprocess.run(
        [sys.executable, str(SUPERVISOR), *argv, "--launch", "slurm:fleet.toml"],
        cwd=tmp_path,
        env=slurm.environment,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "partitoin" in done.stderr
    assert not (tmp_path / "run").exists()


def until(condition: Callable[[], object], what: str, run: subprocess.Popen[str]) -> None:
    give_up = time.monotonic() + 120
    while not condition():
        if run.poll() is not None or time.monotonic() > give_up:
            raise AssertionError(f"no {what}; the command printed: {run.communicate()[0]}")
        time.sleep(0.1)


def evaluators_up(run_dir: Path) -> set[str]:
    """Return the incarnations of the evaluators that are up."""
    try:
        with closing(sqlite3.connect(f"file:{run_dir / 'run.db'}?mode=ro", uri=True)) as db:
            rows = db.execute(
                "SELECT incarnation FROM worker WHERE role = 'evaluator' AND state = 'up'"
            )
            return {incarnation for (incarnation,) in rows}
    except sqlite3.OperationalError:
        return set()


def test_a_cancelled_job_is_replaced_and_the_run_ends(tmp_path: Path, slurm: PrivateSlurm) -> None:
    """The only evaluator is a Slurm job; after scancel another job takes over."""
    command = Command(tmp_path, budget=2)
    (tmp_path / "fleet.toml").write_text(
        'jobs = 1\nevaluators = 1\n[provider]\nwalltime = "00:10:00"\nexclusive = false\n'
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = ["--evaluators", "0", "--listen", f"tcp://127.0.0.1:{port}"]
    run = subprocess.Popen(
        [
            sys.executable,
            str(SUPERVISOR),
            *command.arguments(),
            *argv,
            "--launch",
            "slurm:fleet.toml",
        ],
        cwd=tmp_path,
        env=slurm.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        until(lambda: evaluators_up(command.run_dir), "evaluator by a job", run)
        (first,) = slurm.jobs("R")
        slurm.run("scancel", first)
        until(lambda: set(slurm.jobs("R")) - {first}, "job instead of the first", run)
        printed, _ = run.communicate(timeout=180)
    finally:
        if run.poll() is None:
            run.terminate()
            run.wait(60)

    assert run.returncode in (0, 1), printed
    assert '"attempts": 2' in printed
    until_gone = time.monotonic() + 60
    while slurm.jobs() and time.monotonic() < until_gone:
        time.sleep(0.1)
    assert [] == slurm.jobs(), "a job outlived the run"
    assert {} == json.loads((command.run_dir / "launch.json").read_text()).get("jobs", {})
