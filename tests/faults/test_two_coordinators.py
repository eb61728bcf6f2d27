"""Two coordinators on one run: the second one ends, and the first one is not affected."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from fake_run import TOP, FakeRun


def test_a_second_coordinator_takes_nothing_from_the_first(tmp_path: Path) -> None:
    """The second coordinator ends with status 4 and one line; later workers reach the first one."""
    run = FakeRun(tmp_path / "run", budget=3)
    try:
        run.start("coordinator")
        files = [run.run_dir / name for name in ("coordinator.sock", "run.db")]
        deadline = time.monotonic() + 30
        while not all(file.exists() for file in files):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        second = subprocess.run(
            [sys.executable, "-m", "actors.coordinator"],
            cwd=run.run_dir, capture_output=True, text=True, check=False, timeout=60,
            stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(TOP)},
        )  # fmt: skip
        assert (4, 1) == (second.returncode, len(second.stderr.splitlines()))
        assert "another coordinator" in second.stderr
        for role in ("planner", "coder", "debugger", "evaluator"):
            run.start(role)
        run.wait()
        assert len(run.nodes()) == 4
    finally:
        run.stop()
