"""`python -m actors.coordinator --run-dir DIR`: serves one run; started by the supervisor."""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from pathlib import Path

import zmq
from structlog.typing import FilteringBoundLogger

from actors import failpoints
from actors.commands import typed
from actors.coordinator.coordinator import Coordinator
from actors.coordinator.database import Database, StoreFull, StoreTaken, check_free
from actors.coordinator.doorkeeper import Doorkeeper
from actors.coordinator.mail import Mail
from actors.log import open_log
from actors.post import hold_lifeline, name_process, on_terminate
from actors.usage import EXIT_USAGE, Parser
from protocol import ring as ring_file
from protocol import settings as settings_file
from protocol import transport
from protocol.messages import Beat, Drain, Heard
from protocol.settings import Settings
from protocol.values import Task

FULL_WAIT_S = 1.0
EXIT_FAULT = 4


def main() -> int:
    """Serve until the run is over; the exit status is 0 however it ended, 4 if it could not."""
    parser = Parser(prog="python -m actors.coordinator", description=__doc__)
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
        help="another one than before: all that the former one started is dead",
    )
    arguments = parser.parse_args()
    name_process("coordinator")
    admit_many()
    log = open_log(arguments.run_dir, "coordinator")
    try:
        failpoints.arm("coordinator", arguments.run_dir)
        settings = settings_file.read(arguments.run_dir)
        tasks = read_tasks(arguments.run_dir, settings)
        check_free(arguments.run_dir)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        socket, door = open_doors(context, arguments.run_dir, settings, arguments.listen, log)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"coordinator: {error}\n")
        return EXIT_USAGE
    except StoreTaken as error:
        sys.stderr.write(f"coordinator: {error}\n")
        return EXIT_FAULT
    hold_lifeline(lambda: None)
    try:
        serve(arguments.run_dir, socket, settings, tasks, log, door, arguments.supervisor)
    except StoreTaken as error:
        sys.stderr.write(f"coordinator: {error}\n")
        return EXIT_FAULT
    socket.close()
    if door is not None:
        door.close()
    context.term()
    return 0


def admit_many() -> None:
    """Take as many connections as the system allows: a peer over the limit would never be heard.

    The usual soft limit is 1,024 descriptors, of which each worker takes one.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def open_doors(
    context: zmq.Context[zmq.Socket[bytes]],
    run_dir: Path,
    settings: Settings,
    listen: str,
    log: FilteringBoundLogger,
) -> tuple[zmq.Socket[bytes], Doorkeeper | None]:
    """Listen for this machine's actors, and where the settings say so for other machines, too.

    Raises ValueError or OSError with one line; other machines are never spoken to in the clear.
    """
    address = listen or settings.local
    if not transport.is_loopback(address):
        raise ValueError(
            f"--listen {address} can be reached from other machines, and nothing here would be"
            f" secret: use {typed()} --listen, which makes keys and a ticket"
        )
    if not settings.public or listen.startswith("tcp://"):
        return transport.listen(context, address), None
    ring = ring_file.read(run_dir)
    if ring is None:
        raise ValueError(
            f"{run_dir}: there are no keys for {settings.listen}: resume the run with"
            f" {typed()} --resume {run_dir} --listen {settings.listen}"
        )
    door = Doorkeeper(run_dir, ring, log)
    door.open(context)
    socket = transport.listen(
        context, address, secured=settings.public, server=ring.server, beat_s=settings.beat_s
    )
    door.guard(socket, settings.public)
    return socket, door


def serve(
    run_dir: Path,
    socket: zmq.Socket[bytes],
    settings: Settings,
    tasks: list[Task],
    log: FilteringBoundLogger,
    door: Doorkeeper | None = None,
    supervisor: str = "",
) -> str:
    """Serve the run; while the disk is full, say so, wait, and begin again from what is stored.

    Whoever asks for the end meanwhile gets it: what is stored goes on at the next start.
    """
    while True:
        database: Database | None = None
        coordinator: Coordinator | None = None
        try:
            database = Database(run_dir)
            coordinator = Coordinator(
                database=database,
                socket=socket,
                settings=settings,
                tasks=tasks,
                log=log,
                door=door,
                supervisor=supervisor,
            )
            on_terminate(coordinator.ask_to_drain)
            return coordinator.run()
        except StoreFull as error:
            log.error("the store takes nothing; waiting for room", error=str(error))
            with contextlib.suppress(OSError):  # that disk may be the same one
                sys.stderr.write(f"coordinator: {run_dir}/run.db: {error}; waiting for room\n")
            mail = Mail(socket, log, lambda _name: True, door)
            asked = coordinator is not None and coordinator.draining
            if wait_for_room(mail, str(error)) or asked:
                return "stopped"
        finally:
            if database is not None:
                database.close()


def wait_for_room(mail: Mail, trouble: str) -> bool:
    """Wait, and answer heartbeats meanwhile: we live, only the disk is full.

    Whatever else is said now is lost, and is said again: nothing of it was acknowledged.  Return
    whether we were asked to end.
    """
    asked: list[bool] = []
    on_terminate(lambda: asked.append(True))
    until = time.monotonic() + FULL_WAIT_S
    while (left := until - time.monotonic()) > 0:
        mail.wait(left)
        for sender, origin, message in mail.read():
            if isinstance(message, Beat) and message.sent:
                mail.say(sender, Heard(sent=message.sent, trouble=trouble))
            elif isinstance(message, Drain) and origin.local:
                asked.append(True)
        mail.tell()
    return bool(asked)


def read_tasks(run_dir: Path, settings: Settings) -> list[Task]:
    """Return the run's tasks from `tasks/NAME.py`, in the order of the settings."""
    return [
        Task(
            name=name,
            source=(run_dir / "tasks" / f"{name}.py").read_text(encoding="utf-8"),
            device=settings.device,
            backend=settings.backend,
            modules=_modules(run_dir / settings_file.MODULES / name),
        )
        for name in settings.tasks
    ]


def _modules(folder: Path) -> dict[str, str]:
    """Return what lay beside a task's file, as the supervisor put it there."""
    return {
        str(file.relative_to(folder)): file.read_text(encoding="utf-8")
        for file in sorted(folder.rglob("*.py"))
    }


if __name__ == "__main__":
    sys.exit(main())
