"""The authenticator: which keys may connect from other machines, and the identity of each message.

A thread of pyzmq answers libzmq's requests (ZAP) from the key ring.  The coordinator asks for the
identity of every single message, so that an expired or revoked ticket takes effect at once.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import zmq
from zmq.auth.thread import ThreadAuthenticator

from actors.coordinator.scheduling.workers import PeerIdentity
from actors.log import FilteringBoundLogger
from protocol import key_ring as ring_file
from protocol import transport
from protocol.key_ring import KeyRing
from protocol.values import AGENT_ROLES

MAX_LOGGED_ATTEMPTS = 1000  # rejected connections in the log: peers without a key must not fill it
POLL_S = 0.5  # a revocation takes effect this soon
LISTEN_PAUSE_S = 2.0  # pause of the public address after too many connections


class Authenticator:
    """The present key ring, read again whenever its file changes."""

    def __init__(
        self,
        run_dir: Path,
        key_ring: KeyRing,
        log: FilteringBoundLogger,
        max_connections: int | None = None,
    ) -> None:
        """`max_connections`: open descriptors; by default half of what the system allows."""
        self._run_dir = run_dir
        self._log = log
        self._key_ring = key_ring
        self._stamp = self._file_stamp()
        self._next_poll = 0.0
        self._logged_attempts = 0
        self._zap: ThreadAuthenticator | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._addresses: tuple[str, ...] = ()
        # libzmq aborts the process that has no descriptor left for a connection.
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._max_connections = max_connections or limit // 2
        self._listening_again_at: float | None = None

    def open(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        """Decide about the connections of `context`; call before its sockets are bound."""
        self._zap = ThreadAuthenticator(context)
        self._zap.start()
        self._zap.configure_curve_callback(transport.ZAP_DOMAIN, self)

    def close(self) -> None:
        """Admit no further connection."""
        if self._zap is not None:
            self._zap.stop()
            self._zap = None

    def attach(self, socket: zmq.Socket[bytes], addresses: tuple[str, ...]) -> None:
        """Limit the connections to `addresses`, where `socket` listens."""
        self._socket, self._addresses = socket, addresses

    def limit_connections(self, now: float) -> None:
        """Stop listening on the public addresses while connections take most descriptors.

        A connection needs no key, so any peer can open many.
        """
        if self._socket is None:
            return
        if self._listening_again_at is None:
            if _descriptors() > self._max_connections:
                self._log.error("too many connections: the public address is closed for a while")
                transport.stop_listening(self._socket, self._addresses)
                self._listening_again_at = now + LISTEN_PAUSE_S
        elif now >= self._listening_again_at:
            self._listening_again_at = now + LISTEN_PAUSE_S
            if _descriptors() <= self._max_connections:
                self._reopen(self._socket)

    def _reopen(self, socket: zmq.Socket[bytes]) -> None:
        try:
            transport.resume_listening(socket, self._addresses)
        except OSError as error:  # another process took the port: the next pause tries again
            self._log.error("can't listen on the public address again", error=str(error))
        else:
            self._listening_again_at = None

    def callback(self, _domain: str, key: bytes) -> bool:
        """Whether the holder of a public key may connect; runs in the ZAP thread."""
        # Read in any case: a ticket may be newer than the last poll, and libzmq asks only once.
        self._reload_keys(time.monotonic(), now_or_never=True)
        issued = self._key_ring.issued_key(key.decode("ascii", "replace"))
        admitted = issued is not None and issued.is_valid(time.time())
        self._logged_attempts += 1
        if admitted or self._logged_attempts <= MAX_LOGGED_ATTEMPTS:
            self._log.info("connection", ticket=issued.ticket if issued else "", admitted=admitted)
        return admitted

    def identity_of_key(self, public: str) -> PeerIdentity:
        """Return the identity behind a message's key, which was valid when its holder connected."""
        self._reload_keys(time.monotonic())
        issued = self._key_ring.issued_key(public)
        if issued is None:
            return PeerIdentity(ticket="unknown", is_revoked=True)
        return PeerIdentity(
            ticket=issued.ticket, role=issued.role, is_revoked=not issued.is_valid(time.time())
        )

    def grants_agent_roles(self, ticket: str) -> bool:
        """Whether a ticket is for roles that call models."""
        return any(role in AGENT_ROLES for role in self._key_ring.roles_of_ticket(ticket))

    def _reload_keys(self, now: float, *, now_or_never: bool = False) -> None:
        if now < self._next_poll and not now_or_never:
            return
        self._next_poll = now + POLL_S
        stamp = self._file_stamp()
        if stamp == self._stamp:
            return
        try:
            key_ring = ring_file.read(self._run_dir)
        except ValueError as error:
            self._log.warning("the key ring can't be read", error=str(error))
            return
        self._stamp = stamp
        # Without a ring no key is valid.
        self._key_ring = key_ring or KeyRing(server=self._key_ring.server)

    def _file_stamp(self) -> tuple[int, int]:
        try:
            found = (self._run_dir / ring_file.FILE_NAME).stat()
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_ino)


def _descriptors() -> int:
    """Return about how many descriptors are open: the lowest free number."""
    try:
        free = os.dup(0)
    except OSError:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.close(free)
    return free
