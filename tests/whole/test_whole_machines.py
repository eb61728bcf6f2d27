"""Machines that join and leave: the command on both sides, with a real evaluator."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest
from supervisor_command import SUPERVISOR, Command

Scene = Callable[[Path], Command]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Guest:
    """One supervisor with `--join`, and its output in a file."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.output_path = folder / f"output-{time.monotonic_ns()}"
        with self.output_path.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(SUPERVISOR), "--join", "run/ticket.json", *arguments],
                cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip

    def output(self) -> str:
        return self.output_path.read_text(encoding="utf-8")

    def status(self, timeout_s: float = 60.0) -> int:
        return self.process.wait(timeout=timeout_s)


@contextmanager
def stop_at_exit(*processes: subprocess.Popen):
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=40)


def wait_until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def join_early_and_rejoin(folder: Path) -> Command:
    """Run without evaluators first; then an evaluator waits, is warned, leaves and joins again."""
    command = Command(folder, budget=3)
    address = f"tcp://127.0.0.1:{free_port()}"
    status, _, err = command.finish(
        *command.arguments(), "--listen", address, "--evaluators", "0", "--until-idle"
    )
    assert status == 0, err
    assert "nothing is left for the roles that run here" in err
    early = Guest(folder, "--run-dir", "guest")
    with stop_at_exit(early.process):
        wait_until(lambda: "does not answer yet" in early.output())
        host = command.start("--resume", "run", "--json")
        with stop_at_exit(host):
            wait_until(lambda: command.rows("SELECT 1 FROM lease WHERE running = 1"))
            early.process.send_signal(signal.SIGUSR1)
            assert early.status() == 0, early.output()
            assert "asked to leave by SIGUSR1" in early.output()
            late = Guest(folder, "--run-dir", "guest")
            with stop_at_exit(late.process):
                _, err = host.communicate(timeout=110)
                assert host.returncode == 0, err
                assert late.status() == 0, late.output()
    assert "the run is finished" in late.output()
    return command


@pytest.mark.long
@pytest.mark.parametrize("scene", [join_early_and_rejoin])
def test_an_evaluator_joins_early_leaves_and_joins_again(
    scene: Scene, run_scene: Callable[[Scene], Command]
) -> None:
    """A run without evaluators ends with status 0 and leaves a ticket.  A machine joins before the
    run is resumed, is warned by its batch system, hands back its work, and joins again: no loss is
    charged, every command ends with status 0, and no process is left."""
    command = run_scene(scene)
    task = json.loads((command.run_dir / "result.json").read_text())["tasks"][0]
    assert (3, "finished") == (task["attempts"], task["status"])
    assert command.rows(
        "SELECT COUNT(*) FROM lease WHERE running = 1 AND outcome IN ('lost', 'expired')"
    ) == [(0,)]
    slots = command.rows("SELECT slot FROM worker WHERE role = 'evaluator'")
    assert len(slots) == 1  # the machine joined again under its own name
    assert command.processes() == {}
    settings = (command.folder / "guest" / "stark.toml").read_text()
    assert "time_s = 0.4" in settings  # the guest obeys the run's limits
    assert not (command.folder / "guest" / "keys").exists()
