"""Recovery: the time until work continues after the coordinator or an evaluator was killed.

`python -m scripts.benchmarks.recovery` runs a real supervisor, agents with a script, and two cheap
evaluators, so the times are the coordinator's and the supervisor's own.  Each run has one SIGKILL
of each kind, since the supervisor delays the restart of a slot that dies again soon.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

from actors.cli import OneLineParser
from scripts.benchmarks.machine_info import machine, percentile
from scripts.faults import chaos_machines, ledger_diff, sample_tasks
from scripts.faults.chaos_machines import SupervisedMachine

RUNS = 5
BUDGET = 200
LIMIT_S = 60.0
LAST_EPOCH = "SELECT COALESCE(MAX(epoch), 0) FROM lease"
# The newest lease: work that is nearly done would be done before the signal arrives.
RUNNING_LEASE = (
    "SELECT work, pid, granted FROM lease JOIN worker USING (incarnation) WHERE ended IS NULL"
    " AND running = 1 AND work LIKE '%/evaluate' ORDER BY granted DESC LIMIT 1"
)
FRESH_LEASE_S = 0.05


def begin(folder: Path) -> SupervisedMachine:
    """Start a run as a user would."""
    (task,) = sample_tasks.write(folder, tasks=1, budget=BUDGET, seed=1, cheap=True)
    argv = [*chaos_machines.command(cheap=True), "--task", task.name, "--budget", str(BUDGET)]
    argv += ["--model", "script:script.jsonl", "--run-dir", "run", "--device", "cpu"]
    host = SupervisedMachine(
        "host", [*argv, "--evaluators", "2", "--in-flight", "2"], folder, folder / "run"
    )
    host.start()
    return host


def wait_until(host: SupervisedMachine, query: str, least: int) -> float:
    """Return the time at which a query of the run has reached `least`."""
    deadline = time.monotonic() + LIMIT_S
    while ledger_diff.number(host.run_dir, query) < least:
        if time.monotonic() > deadline or host.status() is not None:
            raise RuntimeError(f"the run does not continue: {host.last_line()}")
        time.sleep(0.002)
    return time.monotonic()


def kill_coordinator(host: SupervisedMachine) -> float:
    """Kill the coordinator; return milliseconds to the first lease of its successor."""
    pid = host.actors()["coordinator"]
    os.kill(pid, signal.SIGKILL)
    killed_at = time.monotonic()
    return (
        wait_until(host, LAST_EPOCH, ledger_diff.number(host.run_dir, LAST_EPOCH) + 1) - killed_at
    ) * 1000


def kill_evaluator(host: SupervisedMachine) -> float:
    """Kill an evaluator; return milliseconds to the next lease of its work."""
    work, pid = "", 0
    while not pid:
        time.sleep(0.002)
        for name, process, granted in ledger_diff.rows(host.run_dir, RUNNING_LEASE):
            if time.time() - float(str(granted)) < FRESH_LEASE_S:
                work, pid = str(name), int(str(process))
    leases = f"SELECT COUNT(*) FROM lease WHERE work = '{work}'"  # noqa: S608  # our own text
    os.kill(pid, signal.SIGKILL)
    killed_at = time.monotonic()
    return (wait_until(host, leases, 2) - killed_at) * 1000


def main() -> None:
    """Print one row for each kind of death."""
    times: dict[str, list[float]] = {"coordinator": [], "evaluator": []}
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as name:
            host = begin(Path(name))
            try:
                wait_until(host, "SELECT COUNT(*) FROM node", 4)
                times["evaluator"].append(kill_evaluator(host))
                times["coordinator"].append(kill_coordinator(host))
            finally:
                host.end()
    print(f"{'killed by SIGKILL':<20} {'p50 ms':>8} {'most ms':>8}   until")
    for role, event in (
        ("coordinator", "its successor grants the first lease"),
        ("evaluator", "its work is leased to another"),
    ):
        print(f"{role:<20} {percentile(times[role], 50):>8.0f} {max(times[role]):>8.0f}   {event}")


if __name__ == "__main__":
    OneLineParser(prog="python -m scripts.benchmarks.recovery", description=__doc__).parse_args()
    print(machine())
    main()
