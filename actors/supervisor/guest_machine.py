"""A machine that lends its processes to a run elsewhere: its folder, its ticket, what it lends.

The settings come from the coordinator with the first welcome.  This machine checks them, as a run's
own supervisor does, and replaces only the numbers that are its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from actors.cli import UsageError
from actors.supervisor.cli import preflight
from actors.supervisor.cli.flags import Arguments
from actors.supervisor.processes import child_specs
from actors.supervisor.processes.child_specs import ChildSpec, MachineSlots
from actors.supervisor.reporting.run_data import run_results
from actors.supervisor.run_folder import RunFolder
from protocol import settings as settings_file
from protocol import tickets
from protocol.settings import Settings
from protocol.tickets import Ticket
from protocol.values import AGENT_ROLES, Role

DEFAULT_WAIT_MINUTES = 60.0  # a card should not wait for ever for a run that does not answer
KEYS_FOLDER = "keys"  # one ticket for each role, in the guest's own folder


@dataclass(frozen=True, kw_only=True)
class GuestMachine:
    """One machine at one run."""

    name: str  # unique over all machines of the run
    folder: RunFolder
    ticket: Ticket
    ticket_path: Path
    lent: dict[Role, int]  # how many processes of each role
    arguments: Arguments
    environ: Mapping[str, str]
    gpus: tuple[str, ...]

    @property
    def wait_minutes(self) -> float:
        """How long the run may be silent: `--max-wait`."""
        return self.arguments.max_wait or DEFAULT_WAIT_MINUTES

    def worker_specs(self, address: str, settings_text: str) -> tuple[ChildSpec, ...]:
        """Return what runs here under the settings that the coordinator at `address` sent.

        Writes the keys and settings that the processes read; raises UsageError with one line.
        """
        settings = local_settings(settings_text, self.lent, self.arguments)
        if any(self.lent[role] for role in AGENT_ROLES):
            settings = preflight.check_models(settings, self.environ, Path.cwd())
        if self.lent[Role.EVALUATOR]:
            preflight.check_device(settings, self.gpus)
            preflight.check_evaluators(settings, self.environ)
        folder = self.folder.path
        slots = MachineSlots(address=address, machine=self.name, tickets=self._write_keys())
        settings_file.write(folder, settings)
        return child_specs.worker_specs(
            settings, slots, folder, self.folder.run_id, self.environ, self.gpus
        )

    def is_run_over(self) -> bool:
        """Whether the ticket is in its run's own folder, and the results there are finished."""
        folder = self.ticket_path.resolve().parent
        return folder.name == self.ticket.run and run_results.is_run_over(folder)

    def remove_keys(self) -> None:
        """Remove the tickets that `worker_specs` wrote."""
        shutil.rmtree(self.folder.path / KEYS_FOLDER, ignore_errors=True)

    def _write_keys(self) -> Path:
        """Write one ticket for each role that runs here: no process gets another role's key."""
        self.remove_keys()
        keys = self.folder.path / KEYS_FOLDER
        keys.mkdir(mode=0o700)
        for role, count in self.lent.items():
            if count:
                tickets.write(keys / f"{role}.json", self.ticket.restricted_to(role))
        return keys


def local_settings(text: str, lent: dict[Role, int], arguments: Arguments) -> Settings:
    """Return the run's settings with this machine's own numbers; raise UsageError."""
    try:
        settings = settings_file.parse(text)
    except ValueError as error:
        raise UsageError(f"the run has settings that are not known here: {error}") from error
    least = int(str(arguments.settings.get("min_sandbox", 0)))
    return replace(
        settings,
        planners=lent[Role.PLANNER],
        coders=lent[Role.CODER],
        debuggers=lent[Role.DEBUGGER],
        evaluators=lent[Role.EVALUATOR],
        min_sandbox=max(least, settings.min_sandbox),
    )
