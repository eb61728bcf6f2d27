"""`python -m actors.coordinator --run-dir DIR`: serves one run; started by the supervisor."""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from pathlib import Path

import zmq

from actors import failpoints
from actors.cli import OneLineParser
from actors.commands import typed_command
from actors.coordinator.coordinator import Coordinator, RunStart
from actors.coordinator.gateway.authenticator import Authenticator
from actors.coordinator.gateway.peer_socket import PeerSocket
from actors.coordinator.storage.database import (
    Database,
    StoreFullError,
    StoreInUseError,
    ensure_unlocked,
)
from actors.exit_status import ExitStatus
from actors.identity import name_process
from actors.lifeline import hold_lifeline, on_terminate
from actors.log import FilteringBoundLogger, open_log
from actors.task_cases import read_options, with_options
from protocol import key_ring as ring_file
from protocol import settings as settings_file
from protocol import transport
from protocol.messages import Drain, Heartbeat, HeartbeatAck
from protocol.run_db import RUN_DB
from protocol.settings import Settings
from protocol.values import MIXED_BACKENDS, Task

DISK_FULL_POLL_S = 1.0
NAMED_SETTINGS = ("budget", "max_cost")


def _parser() -> OneLineParser:
    parser = OneLineParser(prog="python -m actors.coordinator", description=__doc__)
    parser.add_argument("--run-dir", type=Path, default=Path())
    parser.add_argument(
        "--listen",
        default="",
        help="for this machine's actors, instead of the address in stark.toml",
    )
    parser.add_argument(
        "--supervisor",
        default="",
        metavar="LIFE",
        help="the supervisor's incarnation; a new one means that the former one's processes ended",
    )
    parser.add_argument(
        "--named",
        action="append",
        default=[],
        choices=NAMED_SETTINGS,
        help="a setting that the supervisor's command names: it holds over a person's directive",
    )
    return parser


def main() -> int:
    """Serve until the run is over; exit status 0 for any end of a run, 4 when none was served."""
    arguments = _parser().parse_args()
    name_process("coordinator")
    raise_descriptor_limit()
    log = open_log(arguments.run_dir, "coordinator")
    try:
        failpoints.arm("coordinator", arguments.run_dir)
        settings = settings_file.read(arguments.run_dir)
        start = RunStart(
            run_dir=arguments.run_dir,
            settings=settings,
            tasks=read_tasks(arguments.run_dir, settings),
            supervisor=arguments.supervisor,
            named=tuple(arguments.named),
        )
        ensure_unlocked(arguments.run_dir)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        socket, authenticator = listen(context, arguments.run_dir, settings, arguments.listen, log)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"coordinator: {error}\n")
        return ExitStatus.USAGE
    except StoreInUseError as error:
        sys.stderr.write(f"coordinator: {error}\n")
        return ExitStatus.FAULT
    hold_lifeline(lambda: None)
    try:
        serve(start, socket, log, authenticator)
    except StoreInUseError as error:
        sys.stderr.write(f"coordinator: {error}\n")
        return ExitStatus.FAULT
    socket.close()
    if authenticator is not None:
        authenticator.close()
    context.term()
    return 0


def raise_descriptor_limit() -> None:
    """Allow as many connections as the system does: no message of a peer over the limit arrives.

    The usual soft limit is 1,024 descriptors, of which each worker takes one.
    """
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def listen(
    context: zmq.Context[zmq.Socket[bytes]],
    run_dir: Path,
    settings: Settings,
    listen: str,
    log: FilteringBoundLogger,
) -> tuple[zmq.Socket[bytes], Authenticator | None]:
    """Listen for this machine's actors and, where the settings say so, for other machines.

    Raises ValueError or OSError with one line.  Traffic with other machines is always encrypted.
    """
    address = listen or settings.local_address
    if not transport.is_loopback(address):
        raise ValueError(
            f"--listen {address} can be reached from other machines, and the traffic would not be"
            f" encrypted: use {typed_command()} --listen, which makes keys and a ticket"
        )
    if not settings.public_address or listen.startswith("tcp://"):
        return transport.listen(context, address), None
    key_ring = ring_file.read(run_dir)
    if key_ring is None:
        raise ValueError(
            f"{run_dir}: there are no keys for {settings.listen}: resume the run with"
            f" {typed_command()} --resume {run_dir} --listen {settings.listen}"
        )
    authenticator = Authenticator(run_dir, key_ring, log)
    authenticator.open(context)
    socket = transport.listen(
        context,
        address,
        secured=settings.public_address,
        server=key_ring.server,
        beat_s=settings.beat_s,
    )
    authenticator.attach(socket, settings.public_address)
    return socket, authenticator


def serve(
    start: RunStart,
    socket: zmq.Socket[bytes],
    log: FilteringBoundLogger,
    authenticator: Authenticator | None = None,
) -> str:
    """Serve the run; while the disk is full, say so, wait, and begin again from what is stored.

    A request to end is obeyed during that wait, too: the next start goes on from what is stored.
    """
    while True:
        database: Database | None = None
        coordinator: Coordinator | None = None
        try:
            database = Database(start.run_dir)
            coordinator = Coordinator(
                start, database=database, socket=socket, log=log, authenticator=authenticator
            )
            on_terminate(coordinator.ask_to_drain)
            return coordinator.run()
        except StoreFullError as error:
            log.error("the store can't be written; waiting for disk space", error=str(error))
            with contextlib.suppress(OSError):  # stderr may be a file on the same disk
                sys.stderr.write(
                    f"coordinator: {start.run_dir / RUN_DB}: {error}; waiting for disk space\n"
                )
            peer_socket = PeerSocket(socket, log, lambda _name: True, authenticator)
            was_draining = coordinator is not None and coordinator.is_draining
            if wait_for_disk_space(peer_socket, str(error)) or was_draining:
                return "stopped"
        finally:
            if database is not None:
                database.close()


def wait_for_disk_space(peer_socket: PeerSocket, problem: str) -> bool:
    """Wait `DISK_FULL_POLL_S`, answer heartbeats, and return whether a request to end arrived.

    All other messages are dropped: their senders repeat them, since none was acknowledged.
    """
    end_requests: list[bool] = []
    on_terminate(lambda: end_requests.append(True))
    until = time.monotonic() + DISK_FULL_POLL_S
    while (left := until - time.monotonic()) > 0:
        peer_socket.wait(left)
        for sender, identity, message in peer_socket.read():
            if isinstance(message, Heartbeat) and message.sent_at:
                peer_socket.queue(
                    sender, HeartbeatAck(sent_at=message.sent_at, coordinator_problem=problem)
                )
            elif isinstance(message, Drain) and identity.is_local:
                end_requests.append(True)
        peer_socket.flush()
    return bool(end_requests)


def read_tasks(run_dir: Path, settings: Settings) -> list[Task]:
    """Return the run's tasks from `tasks/NAME.py`, in the order of the settings."""
    backends = MIXED_BACKENDS if settings.backend == "mixed" else (settings.backend,)
    tasks = []
    for name in settings.tasks:
        file = run_dir / "tasks" / f"{name}.py"
        source = file.read_text(encoding="utf-8")
        task = Task(
            name=name,
            source=source,
            device=settings.device,
            backend=backends[0],
            other_backends=backends[1:],
            modules=_modules(run_dir / settings_file.MODULES / name),
        )
        tasks.append(with_options(task, read_options(file, source)))
    return tasks


def _modules(folder: Path) -> dict[str, str]:
    """Return the modules that the task imports, as the supervisor stored them: path -> source."""
    return {
        str(file.relative_to(folder)): file.read_text(encoding="utf-8")
        for file in sorted(folder.rglob("*.py"))
    }


if __name__ == "__main__":
    sys.exit(main())
