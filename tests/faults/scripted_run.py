"""A run of the real coordinator, real agents with a script, and an evaluator without torch.

Tests disturb it as they disturb a `FakeRun`.  A dead process is started again at once; a stopped
process is continued after its lease.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fake_run import FakeRun
from process_template import TemplateProcess

from actors.supervisor import guest_tickets
from protocol import settings as settings_file
from protocol import tickets
from protocol.settings import LOCAL_ADDRESS, SearchSettings, Settings
from scripts.faults import sample_tasks

LEASE_S = 1.5


class ScriptedRun(FakeRun):
    """One run folder, its processes, and the failpoints that are armed in them."""

    def __init__(
        self,
        run_dir: Path,
        *,
        budget: int,
        failpoints: str = "",
        listen: str = LOCAL_ADDRESS,
        evaluator_address: str = "",
    ) -> None:
        (run_dir / "tasks").mkdir(parents=True)
        (task,) = sample_tasks.write(run_dir / "tasks", tasks=1, budget=budget, seed=3, cheap=True)
        settings = Settings(
            tasks=(task.stem,),
            model=f"script:{run_dir / 'tasks' / 'script.jsonl'}",
            prompts="compact",
            precheck="on",
            search=SearchSettings(budget=budget),
            beat_s=LEASE_S / 15,
            lease_s=LEASE_S,
            listen=listen,
        )
        settings_file.write(run_dir, settings)
        self.run_dir = run_dir
        self.environment = os.environ | {"STARK_FAILPOINTS": failpoints}
        self.children: dict[str, TemplateProcess] = {}
        self.starts: dict[str, int] = {}
        self._stopped: dict[int, float] = {}
        # If set, the evaluator acts as a guest machine and connects to this address with a ticket.
        self._evaluator_address = evaluator_address
        self._ticket = (
            guest_tickets.create_keys(run_dir, settings, time.time()) if evaluator_address else None
        )

    @classmethod
    @contextmanager
    def running(cls, run_dir: Path, **options: Any) -> Iterator[ScriptedRun]:
        """Start a run; end all of its processes at the end of the block."""
        run = cls(run_dir, **options)
        run.start_all()
        try:
            yield run
        finally:
            run.stop()

    def start(self, role: str) -> None:
        modules = {
            "coordinator": "actors.coordinator",
            "evaluator": "scripts.faults.cheap_evaluator",
        }
        argv = ["-m", modules.get(role, "actors.agents")]
        if role != "coordinator":
            argv += [*self._connection_arguments(role), "--incarnation", secrets.token_hex(8)]
        if role == "evaluator":
            argv += ["--work-s", "0.03"]
        if role not in modules:
            argv += ["--role", role]
        self.start_command(role, argv, self.environment)
        self.starts[role] = self.starts.get(role, 0) + 1

    def _connection_arguments(self, role: str) -> list[str]:
        if role != "evaluator" or self._ticket is None:
            return ["--connect", LOCAL_ADDRESS, "--slot", f"{role}-0"]
        slot = f"{role}-0@there.{self._ticket.name}"
        return ["--connect", self._evaluator_address, "--slot", slot, "--ticket", tickets.FILE_NAME]

    def revive(self) -> None:
        super().revive()
        for child in self.children.values():
            if child.poll() is None and _is_stopped(child.pid):
                since = self._stopped.setdefault(child.pid, time.monotonic())
                if time.monotonic() - since > 1.2 * LEASE_S:
                    os.kill(child.pid, signal.SIGCONT)
            else:
                self._stopped.pop(child.pid, None)

    def fired_points(self) -> set[str]:
        """Return the failpoints that have fired, as PLACE.POINT."""
        folder = self.run_dir / "failpoints"
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        return {name.partition(".")[2] for name in names}

    def calls(self) -> list[tuple]:
        """Return the model calls without their times."""
        return self.rows("SELECT work, role, request, reply FROM call ORDER BY work, request")

    def attempts(self) -> list[tuple]:
        return self.rows(
            "SELECT number, parent, kind, plan, candidate, state FROM attempt ORDER BY 1"
        )

    def ledger(self) -> tuple[list[tuple], ...]:
        """Return the rows that a disturbed run must have in common with an undisturbed one."""
        leases = "SELECT work FROM lease WHERE outcome = 'done' ORDER BY work"
        return self.nodes(), self.attempts(), self.calls(), self.rows(leases)


def _is_stopped(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] == "T"
