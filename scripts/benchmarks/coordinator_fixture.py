"""A fixture: one real coordinator process on a run of its own, to load, measure and kill.

The store is in a temporary folder on this machine's disk, so a commit takes as long as in a run.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from protocol import settings as settings_file
from protocol.settings import SearchSettings, Settings
from protocol.values import Role
from scripts.benchmarks.simulated_workers import SimulatedWorkers

ROOT = Path(__file__).resolve().parents[2]
SOURCE_BYTES = 4_000  # a window shows five of them: more than 20 KB a task on the average
ENDLESS_BUDGET = 10**9
START_TIMEOUT_S = 120.0


class CoordinatorFixture:
    """A coordinator, the workers that load it, and its use of processor and memory."""

    def __init__(self, *, workers: int, under_way: int, tasks: int = 1, calls: bool = False):
        self._folder = tempfile.TemporaryDirectory()
        self.run_dir = Path(self._folder.name)
        self.address = f"tcp://127.0.0.1:{_free_port()}"
        names = tuple(f"t{number}" for number in range(tasks))
        (self.run_dir / "tasks").mkdir()
        for name in names:
            (self.run_dir / "tasks" / f"{name}.py").write_text("#" * SOURCE_BYTES)
        search = SearchSettings(
            budget=ENDLESS_BUDGET, in_flight=under_way // tasks, root_children=ENDLESS_BUDGET
        )
        settings_file.write(self.run_dir, Settings(tasks=names, search=search))
        self.process = self._start()
        self.workers = SimulatedWorkers(
            self.address, workers_by_role(workers), source_bytes=SOURCE_BYTES, calls=calls
        )
        self.workers.serve_until_back(0, START_TIMEOUT_S)

    def __enter__(self) -> CoordinatorFixture:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.workers.close()
        self._folder.cleanup()

    def kill(self) -> tuple[float, float]:
        """Kill the coordinator and start it at once; return seconds to (first lease, all back)."""
        epoch = self.workers.epoch
        self.process.kill()
        killed_at = time.monotonic()
        self.process.wait()
        self.process = self._start()
        tally, all_back_at = self.workers.serve_until_back(epoch, START_TIMEOUT_S)
        return (tally.first_work_at or all_back_at) - killed_at, all_back_at - killed_at

    def cpu_s(self) -> float:
        """Return the processor seconds that the coordinator has used."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8")
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self) -> float:
        """Return the coordinator's resident memory."""
        text = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="utf-8")
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "actors.coordinator", "--listen", self.address],
            cwd=self.run_dir,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )


def workers_by_role(workers: int) -> dict[Role, int]:
    """Return the number of workers of each role; each stage takes its workers equally long here."""
    agents = workers * 5 // 16
    return {
        Role.PLANNER: agents,
        Role.CODER: agents,
        Role.EVALUATOR: workers - 2 * agents,
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
