"""The supervisor killed, or asked to stop on a full disk: nothing is left, and the run goes on."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path

import pytest

from scripts.faults import books, machines, sample
from scripts.faults.machines import Machine

BUDGET = 6
POINTS = ("after-spawn@3", "heard.Welcome", "before-reap", "after-reap", "sent.Lost")
# Deaths for it to see, at moments when no candidate runs: nobody is charged with them.
DEATHS = ("coder.before-work", "planner.before-work", "coder.hear.Write")


RUNS = "SELECT MAX(epoch) FROM lease WHERE ended IS NULL AND running = 1 AND work LIKE '%/evaluate'"
CUTS = 3  # one more than evaluators that may be lost


def machine(folder: Path) -> Machine:
    folder.mkdir()
    (task,) = sample.write(folder, tasks=1, budget=BUDGET, seed=4, cheap=True)
    argv = [*machines.command(cheap=True), "--task", task.name, "--budget", str(BUDGET)]
    argv += ["--model", "script:script.jsonl", "--run-dir", "run", "--device", "cpu"]
    return Machine("host", argv, folder, folder / "run")


def wait(host: Machine, limit_s: float = 60.0) -> int:
    until = time.monotonic() + limit_s
    while host.status() is None and time.monotonic() < until:
        time.sleep(0.02)
    status = host.status()
    assert status is not None, host.said()
    return status


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A run that nobody disturbs."""
    host = machine(tmp_path_factory.mktemp("undisturbed") / "calm")
    host.start()
    assert wait(host) in (0, 1), host.said()
    return host


def test_a_supervisor_killed_at_each_of_its_points(
    calm: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also between a child's death, its burial and the word to the coordinator."""
    armed = [f"supervisor.{point.partition('@')[0]}=kill@{point.partition('@')[2] or 1}"
             for point in POINTS] + [f"{point}=kill" for point in DEATHS]  # fmt: skip
    monkeypatch.setenv("STARK_FAILPOINTS", ";".join(armed))
    host = machine(tmp_path / "hurt")
    host.start()
    kills = 0
    while (status := wait(host)) == -9:
        kills += 1
        if not (host.run_dir / "stark.toml").exists():
            break
        host._argv = [*machines.command(cheap=True), "--resume", "run"]
        host.start()

    assert status in (0, 1), host.said()
    assert len(POINTS) == kills
    assert books.ledger(calm.run_dir) == books.ledger(host.run_dir)
    assert {} == machines.orphans([host.mark()])


def test_power_cuts_under_one_candidate_are_not_its_doing(
    calm: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor dies again and again while the same candidate runs: the candidate is judged
    in the end, as in a run that nobody disturbed."""
    monkeypatch.setenv("STARK_FAILPOINTS", "evaluator.after-work=sleep:1@each")
    host = machine(tmp_path / "hurt")
    host.start()
    last = 0
    for cut in range(1, CUTS + 1):
        while books.number(host.run_dir, RUNS) <= last:
            assert host.status() is None, host.said()
            time.sleep(0.01)
        last = books.number(host.run_dir, RUNS)
        host.kill()
        host._argv = [*machines.command(cheap=True), "--resume", "run"]
        if cut == CUTS:
            monkeypatch.delenv("STARK_FAILPOINTS")
        host.start()

    assert wait(host) in (0, 1), host.said()
    query = "SELECT work, COUNT(*) FROM lease WHERE outcome = 'cut' AND running GROUP BY work"
    assert [CUTS] == [count for _, count in books.rows(host.run_dir, query)]
    assert books.ledger(calm.run_dir) == books.ledger(host.run_dir)


def test_a_stop_on_a_full_disk_is_a_stop(calm: Machine, tmp_path: Path) -> None:
    """Neither run.db nor the results can be written: SIGTERM ends it all the same, with 3, soon
    and with nothing left behind; when there is room it goes on and nothing is missing."""
    host = machine(tmp_path / "full")
    host.start()
    while not books.number(host.run_dir, "SELECT COUNT(*) FROM node"):
        assert host.status() is None, host.said()
        time.sleep(0.01)
    nothing = (0, resource.RLIM_INFINITY)
    resource.prlimit(host.actors()["coordinator"], resource.RLIMIT_FSIZE, nothing)
    until = time.monotonic() + 60.0
    while "takes nothing" not in host.said():
        assert host.status() is None, host.said()
        assert time.monotonic() < until
        time.sleep(0.05)
    resource.prlimit(host.pid, resource.RLIMIT_FSIZE, nothing)  # its stdout is a file, too
    os.kill(host.pid, signal.SIGTERM)

    assert wait(host) == 3, host.said()
    assert {} == machines.orphans([host.mark()])
    host._argv = [*machines.command(cheap=True), "--resume", "run"]
    host.start()
    assert wait(host) in (0, 1), host.said()
    assert books.ledger(calm.run_dir) == books.ledger(host.run_dir)
