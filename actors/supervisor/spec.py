"""What is supervised, in OTP's words: child specs with their restart intensity.

Built once from the settings; read by the fleet.  Says nothing about processes that run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from actors.supervisor import environment
from actors.supervisor.restarts import Intensity
from protocol.settings import FILE_NAME, Settings
from protocol.values import AGENTS, Role, Value

COORDINATOR = "coordinator"
COORDINATOR_INTENSITY = Intensity(limit=3, window_s=60.0)
AGENT_INTENSITY = Intensity(limit=5, window_s=60.0)
EVALUATOR_INTENSITY = Intensity(limit=10, window_s=300.0)


class ChildSpec(Value, frozen=True, kw_only=True):
    """One supervised place: what runs there, and how often it may be started again."""

    name: str  # the slot: "coordinator", "planner-0", "evaluator-1"
    role: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    restart: Literal["permanent", "transient"] = "permanent"  # transient: exit status 0 is an end
    intensity: Intensity
    fenced: bool = False  # told its incarnation on the command line, its loss to the coordinator

    def command(self, incarnation: str) -> list[str]:
        """Return the argument list of one process at this place."""
        return [*self.argv, *(("--incarnation", incarnation) if self.fenced else ())]


def children(
    settings: Settings,
    run_dir: Path,
    run_id: str,
    environ: Mapping[str, str],
    gpus: tuple[str, ...],
) -> tuple[ChildSpec, ...]:
    """Return the specs of a run in the order of starting: coordinator, agents, evaluators."""
    specs = [
        ChildSpec(
            name=COORDINATOR,
            role=COORDINATOR,
            argv=_module("coordinator", "--run-dir", str(run_dir), "--listen", settings.listen),
            environment=environment.of_child(environ, run_id),
            restart="transient",
            intensity=COORDINATOR_INTENSITY,
        )
    ]
    wanted = {
        Role.PLANNER: settings.planners,
        Role.CODER: settings.coders,
        Role.DEBUGGER: settings.debuggers,
    }
    for role in AGENTS:
        for number in range(wanted[role]):
            specs.append(_agent(role, number, settings, run_dir, run_id, environ))
    for number in range(settings.evaluators):
        specs.append(_evaluator(number, settings, run_dir, run_id, environ, gpus))
    return tuple(specs)


def _agent(
    role: Role,
    number: int,
    settings: Settings,
    run_dir: Path,
    run_id: str,
    environ: Mapping[str, str],
) -> ChildSpec:
    slot = f"{role}-{number}"
    config = ("--config", str(run_dir / FILE_NAME))
    return ChildSpec(
        name=slot,
        role=role,
        argv=_module("agents", "--role", role, *_post(settings, slot, run_dir), *config),
        environment=environment.of_child(environ, run_id, key=True),
        intensity=AGENT_INTENSITY,
        fenced=True,
    )


def _evaluator(
    number: int,
    settings: Settings,
    run_dir: Path,
    run_id: str,
    environ: Mapping[str, str],
    gpus: tuple[str, ...],
) -> ChildSpec:
    slot = f"{Role.EVALUATOR}-{number}"
    gpu = gpus[number % len(gpus)] if gpus and settings.device == "cuda" else None
    return ChildSpec(
        name=slot,
        role=Role.EVALUATOR,
        argv=_module("evaluator", *_post(settings, slot, run_dir), "--device", settings.device),
        environment=environment.of_child(environ, run_id, gpu=gpu),
        intensity=EVALUATOR_INTENSITY,
        fenced=True,
    )


def _post(settings: Settings, slot: str, run_dir: Path) -> tuple[str, ...]:
    return ("--connect", settings.listen, "--slot", slot, "--run-dir", str(run_dir))


def _module(room: str, *arguments: str) -> tuple[str, ...]:
    # -P: the run directory, where children stand, must never be searched for modules.
    return (sys.executable, "-P", "-m", "actors.supervisor.launch", f"actors.{room}", *arguments)
