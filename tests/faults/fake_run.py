"""A run of the real coordinator and fake workers (`fake_worker.py`), which tests disturb."""

from __future__ import annotations

import os
import secrets
import signal
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path

from process_template import TemplateProcess, start_process

from protocol import settings as settings_file
from protocol.settings import SearchSettings, Settings
from protocol.values import WORKER_ROLES

FAKE_WORKER = Path(__file__).parent / "fake_worker.py"
TOP = Path(__file__).parents[2]
ROLES = ("coordinator", *WORKER_ROLES)


class FakeRun:
    """One run folder and one process per role; `revive` acts as the supervisor."""

    def __init__(
        self,
        run_dir: Path,
        *,
        budget: int,
        in_flight: int = 1,
        tasks: tuple[str, ...] = ("t",),
        **options: object,
    ) -> None:
        self.run_dir = run_dir
        (run_dir / "tasks").mkdir(parents=True)
        for task in tasks:
            (run_dir / "tasks" / f"{task}.py").write_text("# the reference\n")
        search = SearchSettings(budget=budget, in_flight=in_flight)
        settings = Settings(tasks=tasks, search=search, beat_s=0.5, lease_s=3.0, **options)
        settings_file.write(run_dir, settings)
        self.children: dict[str, TemplateProcess] = {}

    def start(self, role: str) -> None:
        if role == "coordinator":
            argv = ["-m", "actors.coordinator"]
        else:
            argv = [str(FAKE_WORKER), "--role", role, "--connect", "ipc://coordinator.sock"]
            argv += ["--slot", f"{role}-0", "--incarnation", secrets.token_hex(8)]
        self.start_command(role, argv)

    def start_command(
        self, role: str, argv: list[str], environment: Mapping[str, str] = os.environ
    ) -> None:
        """Start `python ARGV...` in the run folder."""
        with (self.run_dir / "out.txt").open("ab") as out:
            self.children[role] = start_process(argv, self.run_dir, out, environment)

    def kill(self, role: str, signal_number: int = signal.SIGKILL) -> None:
        os.kill(self.children[role].pid, signal_number)
        self.children[role].wait()

    def start_all(self) -> None:
        for role in ROLES:
            self.start(role)

    def revive(self) -> None:
        """Start each dead process again, except those that ended with status 0."""
        for role, child in self.children.items():
            if child.poll() is not None and child.returncode != 0:
                self.start(role)

    def is_over(self) -> bool:
        return self.children["coordinator"].poll() == 0

    def wait(self, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.is_over():
            if time.monotonic() > deadline:
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
