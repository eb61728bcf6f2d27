"""A real coordinator, real agents with a script, an evaluator that believes: to be disturbed.

Processes by place, as in `fake_run`; what dies is started again at once, what was stopped is
continued after its lease.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fake_run import FakeRun

from actors.supervisor import guest_tickets
from protocol import settings as settings_file
from protocol import tickets
from protocol.settings import LOCAL_ADDRESS, SearchSettings, Settings
from scripts.faults import sample_tasks

TOP = Path(__file__).parents[2]
LEASE_S = 1.5


class ScriptedRun(FakeRun):
    """One run folder, and what is armed in its processes."""

    def __init__(
        self,
        run_dir: Path,
        *,
        budget: int,
        failpoints: str = "",
        listen: str = LOCAL_ADDRESS,
        elsewhere: str = "",
    ) -> None:
        (run_dir / "tasks").mkdir(parents=True)
        (task,) = sample_tasks.write(run_dir / "tasks", tasks=1, budget=budget, seed=3, cheap=True)
        settings = Settings(
            tasks=(task.stem,),
            model=f"script:{run_dir / 'tasks' / 'script.jsonl'}",
            search=SearchSettings(budget=budget),
            beat_s=LEASE_S / 15,
            lease_s=LEASE_S,
            listen=listen,
        )
        settings_file.write(run_dir, settings)
        self.run_dir = run_dir
        self.environment = os.environ | {"STARK_FAILPOINTS": failpoints, "PYTHONPATH": str(TOP)}
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.starts: dict[str, int] = {}
        self._stopped: dict[int, float] = {}
        # With it the evaluator stands on another machine, which reaches us at this address.
        self._elsewhere = elsewhere
        self._ticket = (
            guest_tickets.create_keys(run_dir, settings, time.time()) if elsewhere else None
        )

    @classmethod
    @contextmanager
    def playing(cls, run_dir: Path, **wishes: Any) -> Iterator[ScriptedRun]:
        """Start a run, and end all of it in the end."""
        run = cls(run_dir, **wishes)
        run.start_all()
        try:
            yield run
        finally:
            run.stop()

    def start(self, place: str) -> None:
        module = {
            "coordinator": "actors.coordinator",
            "evaluator": "scripts.faults.cheap_evaluator",
        }
        argv = ["-m", module.get(place, "actors.agents")]
        if place != "coordinator":
            argv += [*self._place_of(place), "--incarnation", secrets.token_hex(8)]
        if place == "evaluator":
            argv += ["--work-s", "0.03"]
        if place not in module:
            argv += ["--role", place]
        with (self.run_dir / "out.txt").open("ab") as out:
            self.children[place] = subprocess.Popen(
                [sys.executable, *argv], cwd=self.run_dir, stdin=subprocess.DEVNULL,
                stdout=out, stderr=out, env=self.environment,
            )  # fmt: skip
        self.starts[place] = self.starts.get(place, 0) + 1

    def _place_of(self, place: str) -> list[str]:
        if place != "evaluator" or self._ticket is None:
            return ["--connect", LOCAL_ADDRESS, "--slot", f"{place}-0"]
        slot = f"{place}-0@there.{self._ticket.name}"
        return ["--connect", self._elsewhere, "--slot", slot, "--ticket", tickets.FILE_NAME]

    def revive(self) -> None:
        super().revive()
        for child in self.children.values():
            if child.poll() is None and _is_stopped(child.pid):
                since = self._stopped.setdefault(child.pid, time.monotonic())
                if time.monotonic() - since > 1.2 * LEASE_S:
                    os.kill(child.pid, signal.SIGCONT)
            else:
                self._stopped.pop(child.pid, None)

    def fired(self) -> set[str]:
        """Return the points at which something happened."""
        folder = self.run_dir / "failpoints"
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        return {name.partition(".")[2] for name in names}

    def calls(self) -> list[tuple]:
        """Return what was bought, without when."""
        return self.rows("SELECT work, role, request, reply FROM call ORDER BY work, request")

    def attempts(self) -> list[tuple]:
        return self.rows(
            "SELECT number, parent, kind, plan, candidate, state FROM attempt ORDER BY 1"
        )

    def ledger(self) -> tuple[list[tuple], ...]:
        """Return all that a disturbed run must have in common with an undisturbed one."""
        leases = "SELECT work FROM lease WHERE outcome = 'done' ORDER BY work"
        return self.nodes(), self.attempts(), self.calls(), self.rows(leases)


def _is_stopped(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] == "T"
