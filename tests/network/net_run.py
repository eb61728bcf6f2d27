"""A real coordinator that listens for other machines, and fake workers with tickets."""

from __future__ import annotations

import secrets
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import zmq
from fake_run import FAKE_WORKER, FakeRun
from process_template import start_process

from actors.supervisor import guest_tickets
from protocol import codec, key_ring, tickets, transport
from protocol import settings as settings_file
from protocol.messages import Message
from protocol.tickets import ConnectionCredential, Ticket
from protocol.values import WORKER_ROLES, Role

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class NetRun(FakeRun):
    """A run with workers on other machines: they have a ticket, and perhaps a namespace."""

    def __init__(
        self,
        run_dir: Path,
        *,
        budget: int,
        away: tuple[str, ...] = WORKER_ROLES,
        listen: str = "127.0.0.1",
        reached: str = "127.0.0.1",
        inside: dict[str, list[str]] | None = None,
        **more: object,
    ) -> None:
        port = free_port()
        super().__init__(run_dir, budget=budget, listen=f"tcp://{listen}:{port}", **more)
        self.address = f"tcp://{reached}:{port}"
        self.addresses: dict[str, str] = {}  # of the coordinator, for single workers
        self.away = away
        self.inside = inside or {}
        self.settings = settings_file.read(run_dir)
        self.ticket = self.issue(run_dir / tickets.FILE_NAME)
        self.guests: list[subprocess.Popen[str]] = []  # whole supervisors
        self.guest = run_dir.parent / "guest"
        self.guest.mkdir()

    def issue(
        self, path: Path, roles: tuple[Role, ...] = WORKER_ROLES, seconds: float = 600
    ) -> Ticket:
        """Write a ticket as a listening supervisor does."""
        known = key_ring.read(self.run_dir) or key_ring.KeyRing(server=key_ring.new_key_pair())
        expires = time.time() + seconds
        return guest_tickets.issue_ticket(
            self.run_dir, known, path, self.settings, (self.address,), roles, expires
        )

    def start(self, place: str) -> None:
        if place not in self.away:
            argv, folder = self.at_home(place), self.run_dir
        else:
            tickets.write(self.guest / f"{place}.json", self.ticket.restricted_to(Role(place)))
            folder = self.guest
            argv = [str(FAKE_WORKER), "--role", place]
            argv += ["--connect", self.addresses.get(place, self.address)]
            argv += ["--slot", f"{place}-0@far-1.{self.ticket.name}", "--ticket", f"{place}.json"]
            argv += ["--incarnation", secrets.token_hex(8)]
        with (self.run_dir / "out.txt").open("ab") as out:
            if place not in self.inside:
                self.children[place] = start_process(argv, folder, out, ENVIRONMENT)
                return
            self.children[place] = subprocess.Popen(
                [*self.inside[place], sys.executable, *argv], cwd=folder,
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=ENVIRONMENT,
            )  # fmt: skip

    def start_all_away(self) -> None:
        for place in self.away:
            self.start(place)

    def at_home(self, place: str) -> list[str]:
        if place == "coordinator":
            return ["-m", "actors.coordinator"]
        argv = [str(FAKE_WORKER), "--role", place, "--connect", "ipc://coordinator.sock"]
        return [*argv, "--slot", f"{place}-0", "--incarnation", secrets.token_hex(8)]

    def listening(self, seconds: float = 20.0) -> None:
        """Wait until the coordinator has recorded its first event."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with suppress(sqlite3.OperationalError):  # the tables may not exist yet
                if self.rows("SELECT 1 FROM event"):
                    return
            time.sleep(0.02)
        raise TimeoutError


ENVIRONMENT = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONPATH": str(ROOT)}


class RawGuest:
    """A connection with any credential, which sends any messages."""

    def __init__(
        self, address: str, credential: ConnectionCredential | None, name: str = ""
    ) -> None:
        self.name = name or secrets.token_hex(8)
        self._context = zmq.Context()
        self._connection = transport.Connection(self._context, address, self.name, credential)
        self._to = codec.coordinator_codec()
        self._from = codec.worker_codec()
        self.key_rejected = False

    def wait_connected(self, seconds: float = 3.0) -> bool:
        """Wait for a finished handshake; False when there was none."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.key_rejected:
            events = self._connection.poll_events(time.monotonic())
            self.key_rejected |= events.key_rejected
            if events.connected:
                return True
            self._connection.monitor.poll(50)
        return False

    def send(self, message: Message) -> None:
        self._connection.socket.setsockopt(zmq.SNDTIMEO, 5000)
        self._connection.socket.send_multipart(self._to.encode(message))

    def receive(self, seconds: float = 10.0) -> Message:
        assert self._connection.socket.poll(int(seconds * 1000)), "there was no answer"
        return self._from.decode(self._connection.socket.recv_multipart())

    def receive_until(self, kind: type[Message], seconds: float = 10.0) -> Message:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            message = self.receive(seconds)
            if isinstance(message, kind):
                return message
        raise TimeoutError(kind)

    def close(self) -> None:
        self._connection.close(0)
        self._context.term()

    def __enter__(self) -> RawGuest:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
