"""A real coordinator and real actor processes around fake work, to be killed at will."""

from __future__ import annotations

import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from protocol import settings as settings_file
from protocol.settings import SearchSettings, Settings
from protocol.values import WORKER_ROLES

FAKE_WORKER = Path(__file__).parent / "fake_worker.py"
TOP = Path(__file__).parents[2]
PLACES = ("coordinator", *WORKER_ROLES)


class FakeRun:
    """Processes by place; whatever is killed is started again at once, as a supervisor would."""

    def __init__(
        self,
        run_dir: Path,
        *,
        budget: int,
        in_flight: int = 1,
        tasks: tuple[str, ...] = ("t",),
        **more: object,
    ) -> None:
        self.run_dir = run_dir
        (run_dir / "tasks").mkdir(parents=True)
        for task in tasks:
            (run_dir / "tasks" / f"{task}.py").write_text("# the reference\n")
        search = SearchSettings(budget=budget, in_flight=in_flight)
        settings = Settings(tasks=tasks, search=search, beat_s=0.5, lease_s=3.0, **more)
        settings_file.write(run_dir, settings)
        self.children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, place: str) -> None:
        if place == "coordinator":
            argv = ["-m", "actors.coordinator"]
        else:
            argv = [str(FAKE_WORKER), "--role", place, "--connect", "ipc://coordinator.sock"]
            argv += ["--slot", f"{place}-0", "--incarnation", secrets.token_hex(8)]
        with (self.run_dir / "out.txt").open("ab") as out:
            self.children[place] = subprocess.Popen(
                [sys.executable, *argv], cwd=self.run_dir, stdin=subprocess.DEVNULL,
                stdout=out, stderr=out, env={**os.environ, "PYTHONPATH": str(TOP)},
            )  # fmt: skip

    def kill(self, place: str, number: int = signal.SIGKILL) -> None:
        os.kill(self.children[place].pid, number)
        self.children[place].wait()

    def start_all(self) -> None:
        for place in PLACES:
            self.start(place)

    def revive(self) -> None:
        """Start again what has died, but a coordinator that ended the run."""
        for place, child in self.children.items():
            if child.poll() is not None and child.returncode != 0:
                self.start(place)

    def over(self) -> bool:
        return self.children["coordinator"].poll() == 0

    def wait(self, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while not self.over():
            if time.monotonic() > until:
                raise TimeoutError((self.run_dir / "out.txt").read_text())
            self.revive()
            time.sleep(0.02)

    def stop(self) -> None:
        for child in self.children.values():
            if child.poll() is None:
                child.kill()
            child.wait()

    # --- the ledger --------------------------------------------------------------------------

    def rows(self, query: str) -> list[tuple]:
        with sqlite3.connect(f"file:{self.run_dir / 'run.db'}?mode=ro", uri=True) as db:
            return db.execute(query).fetchall()

    def nodes(self) -> list[tuple]:
        return self.rows("SELECT number, parent, source, advice, word FROM node ORDER BY number")

    def progress(self) -> int:
        try:
            return self.rows("SELECT COUNT(*) FROM node")[0][0]
        except sqlite3.OperationalError:
            return 0
