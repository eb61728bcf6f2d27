"""What is supervised, in OTP's terms: child specs with their restart intensity.

The specs are built once from the settings; the process tree reads them.  They hold no state of
running processes.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from actors.supervisor.processes import environment, launcher_client
from actors.supervisor.processes.restarts import RestartIntensity
from protocol.settings import FILE_NAME, Settings
from protocol.values import WORKER_ROLES, Role, Value

COORDINATOR = "coordinator"
LAUNCHER = "launcher"
COORDINATOR_INTENSITY = RestartIntensity(limit=3, period_s=60.0)
AGENT_INTENSITY = RestartIntensity(limit=5, period_s=60.0)
EVALUATOR_INTENSITY = RestartIntensity(limit=10, period_s=300.0)


class ChildSpec(Value, frozen=True, kw_only=True):
    """One supervised slot: what runs there, and how often it may be restarted."""

    name: str  # the slot: "coordinator", "planner-0", "evaluator-1"
    role: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    restart: Literal["permanent", "transient"] = "permanent"  # transient: exit status 0 is an end
    intensity: RestartIntensity
    fenced: bool = False  # it gets its incarnation as an argument; its loss is reported

    def command(self, incarnation: str) -> list[str]:
        """Return the argument list of one process in this slot."""
        return [*self.argv, *(("--incarnation", incarnation) if self.fenced else ())]


class MachineSlots(Value, frozen=True, kw_only=True):
    """Where a machine's workers connect, and the names of their slots."""

    address: str
    machine: str = ""  # "gpu7-91f3aa.5c2e1a"; "" for the run's own
    tickets: Path | None = None  # the folder that holds one for each role

    def slot(self, role: Role, number: int) -> str:
        """Return a slot that is unique over all machines of a run."""
        return f"{role}-{number}" + (f"@{self.machine}" if self.machine else "")

    def identity_arguments(self, role: Role, number: int, run_dir: Path) -> tuple[str, ...]:
        """Return the arguments that say where a worker belongs; a secret only as a file's path."""
        slot_arguments = ("--connect", self.address, "--slot", self.slot(role, number))
        key = () if self.tickets is None else ("--ticket", str(self.tickets / f"{role}.json"))
        return (*slot_arguments, "--run-dir", str(run_dir), *key)


def run_specs(
    settings: Settings,
    run_dir: Path,
    run_id: str,
    environ: Mapping[str, str],
    gpus: tuple[str, ...],
    named: tuple[str, ...] = (),
) -> tuple[ChildSpec, ...]:
    """Return the specs of a run in the order of starting: coordinator, agents, evaluators.

    `named`: settings of the command line that hold over a person's earlier directives.
    """
    coordinator = ChildSpec(
        name=COORDINATOR,
        role=COORDINATOR,
        argv=_module(
            "coordinator",
            *("--run-dir", str(run_dir), "--listen", settings.local_address),
            *("--supervisor", secrets.token_hex(8)),
            *(word for name in named for word in ("--named", name)),
        ),
        environment=environment.child_environment(environ, run_id),
        restart="transient",
        intensity=COORDINATOR_INTENSITY,
    )
    slots = MachineSlots(address=settings.local_address)
    local = worker_specs(settings, slots, run_dir, run_id, environ, gpus)
    if not settings.launch:
        return (coordinator, *local)
    # Without the parent-death signal: the launcher must cancel its jobs after the supervisor's end.
    launcher = ChildSpec(
        name=LAUNCHER,
        role=LAUNCHER,
        argv=launcher_client.launcher_command(settings.launch, run_dir),
        environment=environment.child_environment(environ, run_id, launches=True),
        intensity=AGENT_INTENSITY,
    )
    return (coordinator, *local, launcher)


def worker_specs(
    settings: Settings,
    slots: MachineSlots,
    run_dir: Path,
    run_id: str,
    environ: Mapping[str, str],
    gpus: tuple[str, ...],
) -> tuple[ChildSpec, ...]:
    """Return the specs of a machine's agents and evaluators."""
    specs = []
    for role in WORKER_ROLES:
        for number in range(settings.process_count(role)):
            identity = slots.identity_arguments(role, number, run_dir)
            slot = slots.slot(role, number)
            if role is Role.EVALUATOR:
                gpu = gpus[number % len(gpus)] if gpus and settings.device == "cuda" else None
                argv = _module("evaluator", *identity, "--device", settings.device)
                seen = environment.child_environment(environ, run_id, gpu=gpu)
                intensity = EVALUATOR_INTENSITY
            else:
                config = ("--config", str(run_dir / FILE_NAME))
                argv = _module("agents", "--role", role, *identity, *config)
                seen = environment.child_environment(environ, run_id, key=True)
                intensity = AGENT_INTENSITY
            specs.append(
                ChildSpec(
                    name=slot,
                    role=role,
                    argv=argv,
                    environment=seen,
                    intensity=intensity,
                    fenced=True,
                )
            )
    return tuple(specs)


def _module(package: str, *arguments: str) -> tuple[str, ...]:
    # -P: the run folder, in which children work, must never be searched for modules.
    return (
        sys.executable,
        "-P",
        "-m",
        "actors.supervisor.processes.exec_actor",
        f"actors.{package}",
        *arguments,
    )
