"""Machines that come and go, as a user sees them: the command on both sides, a real evaluator."""

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
    """One `--join`, with its output in a file."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.said = folder / f"said-{time.monotonic_ns()}"
        with self.said.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(SUPERVISOR), "--join", "run/ticket.json", *arguments],
                cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip

    def text(self) -> str:
        return self.said.read_text(encoding="utf-8")

    def status(self, seconds: float = 60.0) -> int:
        return self.process.wait(timeout=seconds)


@contextmanager
def ended(*processes: subprocess.Popen):
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=40)


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def early_and_late(folder: Path) -> Command:
    """A phase without evaluators; then one that waits, is warned in the middle and comes back."""
    command = Command(folder, budget=3)
    address = f"tcp://127.0.0.1:{free_port()}"
    status, _, err = command.finish(
        *command.arguments(), "--listen", address, "--evaluators", "0", "--until-idle"
    )
    assert status == 0, err
    assert "nothing is left for the roles that run here" in err
    early = Guest(folder, "--run-dir", "guest")
    with ended(early.process):
        until(lambda: "does not answer yet" in early.text())
        host = command.start("--resume", "run", "--json")
        with ended(host):
            until(lambda: command.rows("SELECT 1 FROM lease WHERE running = 1"))
            early.process.send_signal(signal.SIGUSR1)
            assert early.status() == 0, early.text()
            assert "asked to leave by SIGUSR1" in early.text()
            late = Guest(folder, "--run-dir", "guest")
            with ended(late.process):
                _, err = host.communicate(timeout=110)
                assert host.returncode == 0, err
                assert late.status() == 0, late.text()
    assert "the run is finished" in late.text()
    return command


@pytest.mark.long
@pytest.mark.parametrize("scene", [early_and_late])
def test_an_evaluator_that_came_early_leaves_and_comes_back(
    scene: Scene, play: Callable[[Scene], Command]
) -> None:
    """A phase without evaluators ends with 0 and leaves a ticket. A machine joins before the run is
    there, is warned by its batch system in the middle, hands back what it holds, and comes again:
    nobody is charged, everything ends with 0, nothing is left running."""
    command = play(scene)
    task = json.loads((command.run_dir / "result.json").read_text())["tasks"][0]
    assert (3, "finished") == (task["attempts"], task["status"])
    assert command.rows(
        "SELECT COUNT(*) FROM lease WHERE running = 1 AND outcome IN ('lost', 'expired')"
    ) == [(0,)]
    slots = command.rows("SELECT slot FROM worker WHERE role = 'evaluator'")
    assert len(slots) == 1  # it came back as itself
    assert command.processes() == {}
    settings = (command.folder / "guest" / "stark.toml").read_text()
    assert "time_s = 0.4" in settings  # the run's own limits are obeyed there
    assert not (command.folder / "guest" / "keys").exists()
