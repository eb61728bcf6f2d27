"""`--join TICKET`: check the ticket, make the guest's folder, serve the run, return the status.

A guest needs no `run.db` and no coordinator here.  The run's limits, rules and models come over the
wire with the first welcome and are obeyed; only the numbers of processes are this machine's own.
"""

from __future__ import annotations

import os
import random
import re
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from actors import failpoints
from actors.cli import UsageError
from actors.commands import typed_command
from actors.exit_status import ExitStatus
from actors.log import open_log
from actors.supervisor import run_folder
from actors.supervisor.cli import gpu_discovery, preflight
from actors.supervisor.cli.flags import Arguments
from actors.supervisor.guest_loop import GuestLoop
from actors.supervisor.guest_machine import GuestMachine
from actors.supervisor.processes import child_process, orphans
from actors.supervisor.processes.event_poller import EventPoller
from actors.supervisor.processes.process_tree import ProcessTree
from protocol import tickets
from protocol.tickets import Ticket
from protocol.values import WORKER_ROLES, Role


def join_run(arguments: Arguments, environ: Mapping[str, str]) -> int:
    """Lend this machine to a run; return the exit status."""
    path = Path(arguments.join)
    ticket = read_ticket(path, time.time())
    gpus = gpu_discovery.visible_gpus(environ)
    lent = processes_by_role(arguments, ticket, gpus)
    preflight.check_descriptors(sum(lent.values()))
    try:
        folder = run_folder.make_guest_folder(
            arguments.run_dir, f"join-{_slot_text(ticket.run)}-{machine_name()}"
        )
    except OSError as error:
        raise UsageError(
            f"can't make a folder for this machine's files: {error.strerror}"
        ) from error
    with folder:
        orphans.kill_orphans(folder.run_id)
        folder.remove_live_files()
        machine = GuestMachine(
            # The folder's mark tells two machines of one name apart, and stays on a second join.
            name=f"{machine_name()}-{folder.run_id[:6]}.{ticket.name}",
            folder=folder,
            ticket=ticket,
            ticket_path=path.absolute(),
            lent=lent,
            arguments=arguments,
            environ=environ,
            gpus=gpus,
        )
        try:
            return _serve_guest(machine)
        finally:
            machine.remove_keys()
            folder.remove_live_files()


def read_ticket(path: Path, wall: float) -> Ticket:
    """Return a ticket that is valid at the time of day `wall`; raise UsageError with one line."""
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
    """Return how many processes of each role this machine lends: evaluators by default."""
    lent = {role: int(str(arguments.settings.get(f"{role}s", 0))) for role in WORKER_ROLES}
    if not any(f"{role}s" in arguments.settings for role in WORKER_ROLES):
        lent[Role.EVALUATOR] = max(1, len(gpus))
    if not any(lent.values()):
        raise UsageError("--join: nothing to lend: give --evaluators N, or another role")
    for role, count in lent.items():
        if count and (role not in ticket.keys or Role.SUPERVISOR not in ticket.keys):
            raise UsageError(f"--join: the ticket is not for {role}s: leave out --{role}s")
    return lent


def machine_name() -> str:
    """Return this machine's name as it can appear in a slot."""
    return _slot_text(socket.gethostname().partition(".")[0])[:40] or "host"


def _slot_text(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")


def _serve_guest(machine: GuestMachine) -> ExitStatus:
    folder_path = machine.folder.path
    failpoints.arm("supervisor", folder_path)
    child_process.become_subreaper()
    poller = EventPoller()
    jitter = random.Random()  # noqa: S311  # spreads restarts, hides nothing
    processes = ProcessTree((), folder_path, jitter, on_start=poller.add_child)
    try:
        guest_loop = GuestLoop(
            machine,
            processes=processes,
            poller=poller,
            say=_say,
            log=open_log(folder_path, "supervisor"),
        )
        result = guest_loop.serve()
    finally:
        poller.close()
    line = f"left {machine.ticket.run}: {result.reason}"
    if result.status is ExitStatus.DONE:
        _say(line)
    else:
        with suppress(OSError):  # a file on a disk that is full
            sys.stderr.write(" ".join(line.split()) + "\n")
    return result.status


def _say(line: str) -> None:
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of stdout has closed it: the logs hold what matters.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    except OSError:
        pass  # a file on a disk that is full
