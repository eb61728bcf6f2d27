"""The supervisor killed at each of its own points: nothing is left behind, and the run goes on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from scripts.faults import books, machines, sample
from scripts.faults.machines import Machine

BUDGET = 6
POINTS = ("after-spawn@3", "heard.Welcome", "before-reap", "after-reap", "sent.Lost")
# Deaths for it to see, at moments when no candidate runs: nobody is charged with them.
DEATHS = ("coder.before-work", "planner.before-work", "coder.hear.Write")


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


def test_a_supervisor_killed_at_each_of_its_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also between a child's death, its burial and the word to the coordinator."""
    calm = machine(tmp_path / "calm")
    calm.start()
    assert wait(calm) in (0, 1), calm.said()

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
