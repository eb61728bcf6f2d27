"""Recovery: how soon work goes on after the coordinator, or an evaluator, was killed by SIGKILL.

`python -m scripts.benchmarks.recovery`: a real supervisor, agents with a script, two evaluators
that cost nothing, so that what is seen is ours.  One kill of each kind a run, since a place that
dies again soon is started again later on purpose.
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
NEWEST = "SELECT COALESCE(MAX(epoch), 0) FROM lease"
# The newest: work that is nearly done would be done before the signal arrives.
HELD = (
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


def until(host: SupervisedMachine, query: str, least: int) -> float:
    """Return the time at which a figure of the run has reached `least`."""
    give_up = time.monotonic() + LIMIT_S
    while ledger_diff.number(host.run_dir, query) < least:
        if time.monotonic() > give_up or host.status() is not None:
            raise RuntimeError(f"the run does not go on: {host.last_line()}")
        time.sleep(0.002)
    return time.monotonic()


def kill_coordinator(host: SupervisedMachine) -> float:
    """Return milliseconds from its death to the first lease that its successor grants."""
    pid = host.actors()["coordinator"]
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    return (until(host, NEWEST, ledger_diff.number(host.run_dir, NEWEST) + 1) - killed) * 1000


def kill_evaluator(host: SupervisedMachine) -> float:
    """Return milliseconds from its death to the next lease of the work that it held."""
    work, pid = "", 0
    while not pid:
        time.sleep(0.002)
        for found, process, granted in ledger_diff.rows(host.run_dir, HELD):
            if time.time() - float(str(granted)) < FRESH_LEASE_S:
                work, pid = str(found), int(str(process))
    leases = f"SELECT COUNT(*) FROM lease WHERE work = '{work}'"  # noqa: S608  # our own words
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    return (until(host, leases, 2) - killed) * 1000


def main() -> None:
    """Print one row for each kind of death."""
    times: dict[str, list[float]] = {"coordinator": [], "evaluator": []}
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as name:
            host = begin(Path(name))
            try:
                until(host, "SELECT COUNT(*) FROM node", 4)
                times["evaluator"].append(kill_evaluator(host))
                times["coordinator"].append(kill_coordinator(host))
            finally:
                host.end()
    print(f"{'killed by SIGKILL':<20} {'p50 ms':>8} {'most ms':>8}   until")
    for place, words in (
        ("coordinator", "its successor grants the first lease"),
        ("evaluator", "its work is leased to another"),
    ):
        print(
            f"{place:<20} {percentile(times[place], 50):>8.0f} {max(times[place]):>8.0f}   {words}"
        )


if __name__ == "__main__":
    OneLineParser(prog="python -m scripts.benchmarks.recovery", description=__doc__).parse_args()
    print(machine())
    main()
