"""A whole run: the overhead's share of its wall time, and the recovery of a killed evaluator.

`python -m scripts.benchmarks.whole_run` runs the rule book on one example, then the same with its
evaluator killed by SIGKILL in the middle.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from actors.cli import OneLineParser
from protocol.values import Verdict
from scripts.faults.ledger_diff import rows

TOP = Path(__file__).parent.parent.parent
TASK = TOP / "examples" / "softmax_scaled.py"
BUDGET = 3


def start(run_dir: Path, *more: str) -> subprocess.Popen[bytes]:
    """Start the command as a user would, quietly."""
    argv = ["--task", str(TASK), "--model", "recipes", "--device", "cpu"]
    argv += ["--budget", str(BUDGET), "--run-dir", str(run_dir), *more]
    return subprocess.Popen(
        [sys.executable, str(TOP / "supervisor.py"), *argv], stdout=subprocess.DEVNULL
    )


def number(run_dir: Path, query: str) -> float:
    """Return a query's only figure, 0 while there is none."""
    result = rows(run_dir, query)
    value = result[0][0] if result else None
    return float(value) if isinstance(value, int | float) else 0.0


def shares(run_dir: Path, wall_s: float) -> dict[str, float]:
    """Return seconds by what they were spent on; `ours` is the rest of the wall time."""
    verdicts = [
        msgspec.msgpack.decode(blob, type=Verdict)
        for (blob,) in rows(run_dir, "SELECT verdict FROM node WHERE number > 0")
        if isinstance(blob, bytes)
    ]
    spent = {
        "model": number(run_dir, "SELECT SUM(seconds) FROM call"),
        "builds": sum(verdict.seconds.build for verdict in verdicts),
        "checks": sum(verdict.seconds.check for verdict in verdicts),
        "timing": sum(verdict.seconds.time for verdict in verdicts),
        "reference": number(
            run_dir, "SELECT SUM(ended - granted) FROM lease WHERE work LIKE '%/measure'"
        ),
    }
    return {**spent, "ours": wall_s - sum(spent.values())}


def show_shares() -> None:
    """Run once undisturbed and print the shares of the wall time."""
    with tempfile.TemporaryDirectory() as name:
        run_dir = Path(name) / "run"
        begun_at = time.monotonic()
        start(run_dir).wait()
        wall_s = time.monotonic() - begun_at
        print(f"one run of {BUDGET} attempts on {TASK.name}: {wall_s:.1f} s")
        for share, seconds in shares(run_dir, wall_s).items():
            print(f"  {share:<10} {seconds:7.1f} s  {seconds / wall_s:6.1%}")


def show_recovery() -> None:
    """Kill the evaluator while it judges; print the times to its next lease and verdict."""
    evaluating = "SELECT pid FROM worker WHERE role = 'evaluator' AND state = 'up'"
    open_lease = "SELECT MAX(epoch) FROM lease WHERE work LIKE '%/evaluate' AND ended IS NULL"
    nodes = "SELECT COUNT(*) FROM node"
    with tempfile.TemporaryDirectory() as name:
        run_dir = Path(name) / "run"
        run = start(run_dir)
        while number(run_dir, nodes) < 3 or not number(run_dir, open_lease):
            time.sleep(0.005)
        epoch, count = number(run_dir, open_lease), number(run_dir, nodes)
        os.kill(int(number(run_dir, evaluating)), signal.SIGKILL)
        killed_at = time.monotonic()
        while number(run_dir, open_lease) <= epoch:
            time.sleep(0.005)
        leased_s = time.monotonic() - killed_at
        while number(run_dir, nodes) <= count:
            time.sleep(0.005)
        judged_s = time.monotonic() - killed_at
        run.wait()
        usual = "SELECT AVG(ended - granted) FROM lease WHERE outcome = 'done'"
        usual_s = number(run_dir, f"{usual} AND work LIKE '%/evaluate'")
        print("evaluator killed by SIGKILL while it judged:")
        print(f"  its work leased again        {leased_s:7.2f} s")
        print(f"  its next verdict             {judged_s:7.2f} s")
        print(f"  a verdict without a kill     {usual_s:7.2f} s")


def show_moved() -> None:
    """Kill the one of two evaluators that judges; print the time until the other has its lease."""
    held = (
        "SELECT lease.epoch, lease.work, worker.pid FROM lease JOIN worker USING (slot)"
        " WHERE work LIKE '%/evaluate' AND ended IS NULL AND running = 1"
    )
    with tempfile.TemporaryDirectory() as name:
        run_dir = Path(name) / "run"
        run = start(run_dir, "--evaluators", "2", "--in-flight", "1")
        while not (leases := rows(run_dir, held)) and run.poll() is None:
            time.sleep(0.005)
        epoch, work, pid = leases[0]
        os.kill(int(str(pid)), signal.SIGKILL)
        killed_at = time.monotonic()
        again = f"SELECT COUNT(*) FROM lease WHERE work = '{work}' AND epoch > {epoch}"  # noqa: S608
        while not number(run_dir, again) and run.poll() is None:
            time.sleep(0.005)
        print("one of two evaluators killed by SIGKILL while it judged:")
        print(f"  its lease at the other one   {time.monotonic() - killed_at:7.2f} s")
        run.terminate()
        run.wait()


def main() -> None:
    """Print all three parts."""
    show_shares()
    show_recovery()
    show_moved()


if __name__ == "__main__":
    OneLineParser(prog="python -m scripts.benchmarks.whole_run", description=__doc__).parse_args()
    main()
