"""`--join TICKET`: what is looked at, made and started so that this machine takes part in a run.

Needs no run.db and no coordinator here.  What the run's stark.toml says (limits, rules, models)
comes over the wire with the first welcome and is obeyed; how many processes is said here.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from actors import failpoints
from actors.cli import UsageError
from actors.commands import typed_command
from actors.log import open_log
from actors.supervisor import run_folder
from actors.supervisor.cli import gpu_discovery, preflight
from actors.supervisor.cli.flags import Arguments
from actors.supervisor.guest_loop import GuestExit, GuestLoop
from actors.supervisor.processes import child_process, child_specs, orphans
from actors.supervisor.processes.child_specs import MachineSlots
from actors.supervisor.processes.event_poller import EventPoller
from actors.supervisor.processes.process_tree import ProcessTree
from actors.supervisor.reporting import run_results
from actors.supervisor.run_folder import RunFolder
from protocol import settings as settings_file
from protocol import tickets
from protocol.settings import Settings
from protocol.tickets import Ticket
from protocol.values import AGENT_ROLES, WORKER_ROLES, Role

WAIT_MINUTES = 60.0  # for a run that is not heard of: a card should not wait idle for ever
KEYS_FOLDER = "keys"  # one ticket for each role, in the guest's own folder


def join_run(arguments: Arguments, environ: Mapping[str, str]) -> int:
    """Lend this machine to a run; return the exit status."""
    path = Path(arguments.join)
    ticket = read_ticket(path, time.time())
    gpus = gpu_discovery.visible_gpus(environ)
    wanted = processes_by_role(arguments, ticket, gpus)
    preflight.check_descriptors(sum(wanted.values()))
    try:
        place = run_folder.make_guest_folder(
            arguments.run_dir, f"join-{_plain(ticket.run)}-{machine_name()}"
        )
    except OSError as error:
        raise UsageError(
            f"can't make a folder for this machine's files: {error.strerror}"
        ) from error
    with place:
        orphans.kill_orphans(place.run_id)
        place.remove_live_files()
        try:
            return _serve_guest(place, ticket, wanted, arguments, environ, gpus)
        finally:
            shutil.rmtree(place.path / KEYS_FOLDER, ignore_errors=True)
            place.remove_live_files()


def read_ticket(path: Path, wall: float) -> Ticket:
    """Return a ticket that is good today; raise UsageError with one line."""
    try:
        ticket = tickets.read(path)
    except ValueError as error:
        raise UsageError(f"--join: {error}") from error
    if wall >= ticket.expires:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(ticket.expires))
        raise UsageError(
            f"--join: the ticket {path} has expired at {when}: ask for another, made by"
            f" {typed_command('tickets')} RUN new"
        )
    return ticket


def processes_by_role(
    arguments: Arguments, ticket: Ticket, gpus: tuple[str, ...]
) -> dict[Role, int]:
    """Return how many processes of each role this machine lends: evaluators unless said."""
    given = {role: int(str(arguments.given.get(f"{role}s", 0))) for role in WORKER_ROLES}
    if not any(f"{role}s" in arguments.given for role in WORKER_ROLES):
        given[Role.EVALUATOR] = max(1, len(gpus))
    if not any(given.values()):
        raise UsageError("--join: nothing to lend: give --evaluators N, or another role")
    for role, count in given.items():
        if count and (role not in ticket.keys or Role.SUPERVISOR not in ticket.keys):
            raise UsageError(f"--join: the ticket is not for {role}s: leave out --{role}s")
    return given


def machine_name() -> str:
    """Return this machine's name as it can stand in a slot."""
    return _plain(socket.gethostname().partition(".")[0])[:40] or "host"


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")


def _serve_guest(
    place: RunFolder,
    ticket: Ticket,
    wanted: dict[Role, int],
    arguments: Arguments,
    environ: Mapping[str, str],
    gpus: tuple[str, ...],
) -> int:
    # The folder's mark tells two machines of one name apart, and stays when it comes back.
    machine = f"{machine_name()}-{place.run_id[:6]}.{ticket.name}"
    base = Path.cwd()

    def settle_in(address: str, told: str) -> ProcessTree:
        settings = local_settings(told, wanted, arguments)
        if any(wanted[role] for role in AGENT_ROLES):
            settings = preflight.check_models(settings, environ, base)
        if wanted[Role.EVALUATOR]:
            preflight.check_device(settings, gpus)
            preflight.check_sandbox(settings, environ)
        keys = _split(ticket, wanted, place.path)
        settings_file.write(place.path, settings)
        slots = MachineSlots(address=address, machine=machine, tickets=keys)
        specs = child_specs.worker_specs(settings, slots, place.path, place.run_id, environ, gpus)
        jitter = random.Random()  # noqa: S311  # spreads restarts, hides nothing
        return ProcessTree(specs, place.path, jitter, on_start=poller.add_child)

    failpoints.arm("supervisor", place.path)
    child_process.become_subreaper()
    poller = EventPoller()
    try:
        guest_loop = GuestLoop(
            ticket=ticket,
            machine=machine,
            make_specs=settle_in,
            poller=poller,
            say=_say,
            log=open_log(place.path, "supervisor"),
            minutes=arguments.minutes,
            wait_minutes=arguments.max_wait or WAIT_MINUTES,
            over=lambda: _run_is_over(base / arguments.join, ticket),
        )
        left = guest_loop.serve()
    finally:
        poller.close()
    line = f"left {ticket.run}: {left.reason}"
    if left.status is GuestExit.DONE:
        _say(line)
    else:
        with suppress(OSError):  # a file on a disk that is full
            sys.stderr.write(" ".join(line.split()) + "\n")
    return left.status


def local_settings(told: str, wanted: dict[Role, int], arguments: Arguments) -> Settings:
    """Return the run's settings with this machine's own numbers; raise UsageError."""
    try:
        settings = settings_file.parse(told)
    except ValueError as error:
        raise UsageError(f"the run has settings that are not known here: {error}") from error
    least = int(str(arguments.given.get("min_sandbox", 0)))
    return replace(
        settings,
        planners=wanted[Role.PLANNER],
        coders=wanted[Role.CODER],
        debuggers=wanted[Role.DEBUGGER],
        evaluators=wanted[Role.EVALUATOR],
        min_sandbox=max(least, settings.min_sandbox),
    )


def _run_is_over(path: Path, ticket: Ticket) -> bool:
    """Whether the ticket lies in its run's own folder, and that says that the run is finished."""
    place = path.resolve().parent
    return place.name == ticket.run and run_results.is_run_over(place)


def _split(ticket: Ticket, wanted: dict[Role, int], place: Path) -> Path:
    """Write one ticket for each role that runs here: no process gets another's key."""
    keys = place / KEYS_FOLDER
    shutil.rmtree(keys, ignore_errors=True)
    keys.mkdir(mode=0o700)
    for role, count in wanted.items():
        if count:
            tickets.write(keys / f"{role}.json", ticket.restricted_to(role))
    return keys


def _say(line: str) -> None:
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone: what counts is in the logs.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    except OSError:
        pass  # a file on a disk that is full
