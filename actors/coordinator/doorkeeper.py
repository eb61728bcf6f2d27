"""The door to other machines: who may connect, and whose word a message is.

A thread of pyzmq's answers libzmq's questions (ZAP) from the key ring; the coordinator asks for the
origin of every single message, so that a ticket that expires or is revoked counts at once.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import zmq
from structlog.typing import FilteringBoundLogger
from zmq.auth.thread import ThreadAuthenticator

from actors.coordinator.origin import Origin
from protocol import ring as ring_file
from protocol import transport
from protocol.ring import Ring
from protocol.values import AGENTS

KNOCKS = 1000  # that are logged, if in vain
LOOK_S = 0.5  # a revocation counts this soon
SHUT_S = 2.0  # nobody is let in for so long, once there is a crowd


class Doorkeeper:
    """The key ring as it is now, read again whenever its file changes."""

    def __init__(
        self, run_dir: Path, ring: Ring, log: FilteringBoundLogger, most: int | None = None
    ) -> None:
        """`most`: descriptors that may be open; half of what the system allows."""
        self._run_dir = run_dir
        self._log = log
        self._ring = ring
        self._stamp = self._file_stamp()
        self._next_look = 0.0
        self._knocks = 0
        self._zap: ThreadAuthenticator | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._addresses: tuple[str, ...] = ()
        # libzmq aborts the process that has no descriptor left for a connection.
        self._most = most or resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        self._shut_until: float | None = None

    def open(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        """Answer for `context` who may come in; before its sockets are bound."""
        self._zap = ThreadAuthenticator(context)
        self._zap.start()
        self._zap.configure_curve_callback(transport.ZAP_DOMAIN, self)

    def close(self) -> None:
        """Let nobody in any more."""
        if self._zap is not None:
            self._zap.stop()
            self._zap = None

    def guard(self, socket: zmq.Socket[bytes], addresses: tuple[str, ...]) -> None:
        """Take care of who knocks at `addresses`, where `socket` listens."""
        self._socket, self._addresses = socket, addresses

    def mind_crowd(self, now: float) -> None:
        """Shut the public door while connections take most of our descriptors: strangers can."""
        if self._socket is None:
            return
        if self._shut_until is None:
            if _descriptors() > self._most:
                self._log.error("too many connections: the door is shut for a while")
                transport.shut(self._socket, self._addresses)
                self._shut_until = now + SHUT_S
        elif now >= self._shut_until:
            self._shut_until = now + SHUT_S
            if _descriptors() <= self._most:
                self._reopen(self._socket)

    def _reopen(self, socket: zmq.Socket[bytes]) -> None:
        try:
            transport.reopen(socket, self._addresses)
        except OSError as error:  # somebody took the port meanwhile: tried again
            self._log.error("the door can't be opened", error=str(error))
        else:
            self._shut_until = None

    def callback(self, _domain: str, key: bytes) -> bool:
        """Whether the holder of a public key may connect: asked in the ZAP thread."""
        # Always: a ticket may be newer than our last look, and libzmq asks only once.
        self._look(time.monotonic(), now_or_never=True)
        issued = self._ring.find(key.decode("ascii", "replace"))
        admitted = issued is not None and issued.good(time.time())
        self._knocks += 1
        if admitted or self._knocks <= KNOCKS:  # strangers must not fill the disk
            self._log.info("knock", ticket=issued.ticket if issued else "", admitted=admitted)
        return admitted

    def origin(self, public: str) -> Origin:
        """Return whose message came under that key, which was good when its holder connected."""
        self._look(time.monotonic())
        issued = self._ring.find(public)
        if issued is None:
            return Origin(ticket="unknown", void=True)
        return Origin(ticket=issued.ticket, role=issued.role, void=not issued.good(time.time()))

    def lends_agents(self, ticket: str) -> bool:
        """Whether a ticket is for roles that talk to models."""
        return any(role in AGENTS for role in self._ring.roles(ticket))

    def _look(self, now: float, *, now_or_never: bool = False) -> None:
        if now < self._next_look and not now_or_never:
            return
        self._next_look = now + LOOK_S
        stamp = self._file_stamp()
        if stamp == self._stamp:
            return
        try:
            ring = ring_file.read(self._run_dir)
        except ValueError as error:
            self._log.warning("the key ring can't be read", error=str(error))
            return
        self._stamp = stamp
        # Without a ring nobody has a key.
        self._ring = ring or Ring(server=self._ring.server)

    def _file_stamp(self) -> tuple[int, int]:
        try:
            found = (self._run_dir / ring_file.FILE_NAME).stat()
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_ino)


def _descriptors() -> int:
    """Return about how many descriptors are open: the lowest free number, in one step."""
    try:
        free = os.dup(0)
    except OSError:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.close(free)
    return free
