"""Dispatch: the time from a worker's result to the next worker's work, with durable commits.

The coordinator and the actor processes are real, and the store is on disk; the work takes no time.
Every attempt is three tasks (plan, write, evaluate); a task with a full window is about 20 KB.
`python -m scripts.benchmarks.dispatch`.
"""

from __future__ import annotations

import secrets
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from actors.actor import run_actor
from actors.cli import OneLineParser
from actors.identity import add_identity_arguments, identity_from
from actors.work_context import WorkContext
from protocol import messages
from protocol import settings as settings_file
from protocol.run_db import RUN_DB
from protocol.settings import SearchSettings, Settings
from protocol.values import WORKER_ROLES, Device, Role
from scripts.benchmarks.machine_info import percentile
from scripts.benchmarks.simulated_workers import fabricated_result

SOURCE_BYTES = 3_000  # a full window shows seven of them: about 20 KB a task


class InstantWorker:
    """Answers at once, and records when work came and when its result was ready."""

    def __init__(self, role: Role, credit: int, trace: Path) -> None:
        self.role = role
        self.credit = credit
        self.device: Device | None = None
        self._trace = trace
        self._trace_lines: list[str] = []

    def work(self, request: messages.Work, context: WorkContext) -> messages.Result:
        came_at = time.monotonic()
        result = fabricated_result(request, "#" * SOURCE_BYTES)
        self._trace_lines.append(f"{request.lease.work} {came_at} {time.monotonic()}")
        return result

    def close(self) -> None:
        self._trace.write_text("\n".join(self._trace_lines), encoding="utf-8")


def measure(*, budget: int, in_flight: int, credit: int) -> tuple[list[float], float]:
    """Run one whole search; return (dispatch times in ms, tasks a second)."""
    with tempfile.TemporaryDirectory() as name:
        run_dir = Path(name)
        (run_dir / "tasks").mkdir()
        (run_dir / "tasks" / "t.py").write_text("# reference\n".ljust(SOURCE_BYTES, "#"))
        search = SearchSettings(budget=budget, in_flight=in_flight, root_children=10**9)
        settings_file.write(run_dir, Settings(tasks=("t",), search=search))
        workers = [_start_worker(run_dir, role, credit) for role in WORKER_ROLES]
        coordinator = subprocess.Popen(
            [sys.executable, "-m", "actors.coordinator"], cwd=run_dir, stdin=subprocess.DEVNULL
        )
        status = coordinator.wait()
        for worker in workers:
            worker.wait()
        if status:
            raise RuntimeError(f"the coordinator ended with status {status}")
        return _times(run_dir), _rate(run_dir)


def _start_worker(run_dir: Path, role: Role, credit: int) -> subprocess.Popen[bytes]:
    argv = ["--connect", "ipc://coordinator.sock", "--slot", f"{role}-0", "--run-dir", "."]
    argv += ["--incarnation", secrets.token_hex(8), "--role", role, "--credit", str(credit)]
    return subprocess.Popen(
        [sys.executable, "-m", "scripts.benchmarks.dispatch", *argv],
        cwd=run_dir,
        stdin=subprocess.DEVNULL,
    )


def _times(run_dir: Path) -> list[float]:
    """Return milliseconds from each stage's end to the next stage's start of the same attempt."""
    moments: dict[str, tuple[float, float]] = {}  # work -> (came, done)
    for role in WORKER_ROLES:
        for line in (run_dir / f"trace-{role}").read_text(encoding="utf-8").splitlines():
            work, came_at, done_at = line.split()
            moments[work] = (float(came_at), float(done_at))
    next_stage = {"plan": "write", "write": "evaluate", "repair": "evaluate"}
    times = []
    for work, (_, done) in moments.items():
        attempt, _, stage = work.rpartition("/")
        following = moments.get(f"{attempt}/{next_stage.get(stage, '')}")
        if following is not None:
            times.append((following[0] - done) * 1000)
    return times


def _rate(run_dir: Path) -> float:
    """Return finished leases a second, between the first and the last."""
    with sqlite3.connect(run_dir / RUN_DB) as db:
        count, first, last = db.execute(
            "SELECT COUNT(*), MIN(granted), MAX(ended) FROM lease WHERE outcome = 'done'"
        ).fetchone()
    return float(count / (last - first))


def report() -> None:
    """Print one row for one expansion at a time, one for a full fleet."""
    print(f"{'expansions under way':>20} {'tasks':>7} {'p50 ms':>8} {'p99 ms':>8} {'tasks/s':>9}")
    for budget, in_flight, credit in ((700, 1, 1), (3000, 64, 32)):
        times, rate = measure(budget=budget, in_flight=in_flight, credit=credit)
        row = f"{percentile(times, 50):>8.2f} {percentile(times, 99):>8.2f} {rate:>9.0f}"
        print(f"{in_flight:>20} {budget * 3:>7} {row}")


def main() -> int:
    """Print the report, or run as one of the workers that the report starts."""
    if len(sys.argv) == 1:
        report()
        return 0
    parser = OneLineParser(prog="python -m scripts.benchmarks.dispatch", description=__doc__)
    add_identity_arguments(parser)
    parser.add_argument("--role", type=Role, required=True)
    parser.add_argument("--credit", type=int, default=1)
    arguments = parser.parse_args()
    identity = identity_from(arguments)
    trace = identity.run_dir / f"trace-{arguments.role}"
    return run_actor(InstantWorker(arguments.role, arguments.credit, trace), identity)


if __name__ == "__main__":
    sys.exit(main())
