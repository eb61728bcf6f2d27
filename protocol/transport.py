"""Sockets with the options of `docs/reliability.md`, rule 1: ROUTER binds, DEALER connects.

ZeroMQ drops and duplicates nothing by itself while both ends live, and promises nothing when one
dies: acknowledgements, leases and resending are the actors' business, above this room.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import zmq
import zmq.utils.monitor

from protocol.codec import MAX_FRAME_BYTES
from protocol.tickets import ConnectionCredential, CurveKeyPair
from protocol.values import Value

LINGER_MS = 500
RECONNECT_MS = 50
RECONNECT_MAX_MS = 250  # a restarted coordinator is to have its workers back within a second
BACKLOG = 4096  # a whole fleet comes back at once; beyond it a connection is tried again in 1 s
RECONNECT_AFTER_S = 2.0  # cut off and no new attempt in sight: libzmq will not come back by itself
CONNECT_MS = 3000  # or the kernel's own patience would outlast a partition by a minute
HANDSHAKE_MS = 10_000
GUEST_FRAME_BYTES = 16 * 1024 * 1024  # the most that another machine may say at once
ZAP_DOMAIN = "stark"
CONNECTING_EVENTS = zmq.EVENT_CONNECTED | zmq.EVENT_CONNECT_DELAYED | zmq.EVENT_CONNECT_RETRIED


class AddressInUseError(OSError):
    """Something else listens there."""


def listen(
    context: zmq.Context[zmq.Socket[bytes]],
    address: str,
    *,
    secured: Sequence[str] = (),
    server: CurveKeyPair | None = None,
    beat_s: float = 5.0,
) -> zmq.Socket[bytes]:
    """Return a ROUTER bound to `address`; raise `AddressInUseError` or OSError with one line.

    It also listens at the `secured` addresses, where only CURVE is spoken, with the `server`'s
    keys, and a ZAP handler decides who comes in.
    """
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.ROUTER_HANDOVER, 0)
    socket.setsockopt(zmq.BACKLOG, BACKLOG)
    _limit(socket)
    try:
        _bind(socket, address)
        # What is set on a socket holds for the addresses that are bound afterwards.
        if secured:
            _secure(socket, server)
            # Sooner than the far end: its next connection has the same name, and that must be free.
            _notice_silence(socket, beat_s, 2 * beat_s)
        for other in secured:
            socket.setsockopt(zmq.IPV6, "[" in other)
            _bind(socket, other)
    except OSError:
        socket.close(0)
        raise
    return socket


def stop_listening(socket: zmq.Socket[bytes], addresses: Sequence[str]) -> None:
    """Let nobody in at these addresses any more."""
    for address in addresses:
        with suppress(zmq.ZMQError):  # it is shut already
            socket.unbind(address)


def resume_listening(socket: zmq.Socket[bytes], addresses: Sequence[str]) -> None:
    """Listen there again, as before; raise OSError with one line where that can't be."""
    for address in addresses:
        socket.setsockopt(zmq.IPV6, "[" in address)
        _bind(socket, address)


def connect(
    context: zmq.Context[zmq.Socket[bytes]],
    address: str,
    identity: str,
    credential: ConnectionCredential | None = None,
) -> zmq.Socket[bytes]:
    """Return a DEALER that connects whenever somebody listens at `address`.

    `identity` must be fresh for each process: ROUTER ignores a second peer of the same name.
    """
    socket = _dealer(context, address, identity, credential)
    socket.connect(address)
    return socket


def _dealer(
    context: zmq.Context[zmq.Socket[bytes]],
    address: str,
    identity: str,
    credential: ConnectionCredential | None,
) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, identity.encode())
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
    # Set before connecting: a peer that is not there yet must not swallow or block anything.
    _limit(socket)
    if credential is not None:
        socket.setsockopt(zmq.CURVE_SERVERKEY, credential.server.encode())
        socket.setsockopt(zmq.CURVE_PUBLICKEY, credential.own.public.encode())
        socket.setsockopt(zmq.CURVE_SECRETKEY, credential.own.secret.encode())
        socket.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_MS)
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        socket.setsockopt(zmq.IPV6, "[" in address)
        _notice_silence(socket, credential.beat_s, 4 * credential.beat_s)
    return socket


class ConnectionEvents(Value, frozen=True, kw_only=True):
    """What has happened to a connection since the last look."""

    connected: bool = False  # a handshake was finished: say Hello
    key_rejected: bool = False  # the far end does not want our key: unknown, expired or revoked
    server_key_mismatch: bool = False  # it could not prove to have the key that we expect there


class Connection:
    """A DEALER and what happens to its connection; it sees to it that there is a next one.

    After an error in the protocol (a flipped byte under CURVE) libzmq ends a connection for good.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        identity: str,
        credential: ConnectionCredential | None = None,
    ) -> None:
        self.socket = _dealer(context, address, identity, credential)
        self._address = address
        self._disconnected_at: float | None = None  # since when nothing connects, nor tries to
        # Before connecting, or the first handshake could be over unseen.
        self.monitor = self.socket.get_monitor_socket(
            CONNECTING_EVENTS
            | zmq.EVENT_HANDSHAKE_SUCCEEDED
            | zmq.EVENT_HANDSHAKE_FAILED_AUTH
            | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
            | zmq.EVENT_DISCONNECTED
        )
        self.socket.connect(address)

    def poll_events(self, now: float) -> ConnectionEvents:
        """Read what has happened; connect again where libzmq has given up."""
        up = denied = estranged = False
        while self.monitor.poll(0):
            event = zmq.utils.monitor.recv_monitor_message(self.monitor)["event"]
            up |= event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            denied |= event == zmq.EVENT_HANDSHAKE_FAILED_AUTH
            estranged |= event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
            if event == zmq.EVENT_DISCONNECTED:
                self._disconnected_at = now
            elif event & CONNECTING_EVENTS:
                self._disconnected_at = None
        if self._disconnected_at is not None and now - self._disconnected_at > RECONNECT_AFTER_S:
            self._disconnected_at = now
            with suppress(zmq.ZMQError):  # it may have forgotten the address already
                self.socket.disconnect(self._address)
            self.socket.connect(self._address)
        return ConnectionEvents(connected=up, key_rejected=denied, server_key_mismatch=estranged)

    def close(self, linger_ms: int | None = None) -> None:
        """Hang up; what was said last has `linger_ms` (the usual where that is None) to leave."""
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(linger_ms)


def is_loopback(address: str) -> bool:
    """Whether `address` can be reached from this machine only."""
    if address.startswith(("ipc://", "inproc://")):
        return True
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bind(socket: zmq.Socket[bytes], address: str) -> None:
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        if error.errno == zmq.EADDRINUSE:
            raise AddressInUseError(f"{address} is in use") from error
        raise OSError(f"can't listen on {address}: {error.strerror}") from error
    if address.startswith("ipc://"):
        Path(address.removeprefix("ipc://")).chmod(0o600)


def _secure(socket: zmq.Socket[bytes], server: CurveKeyPair | None) -> None:
    if server is None:
        raise ValueError("a secured address needs the server's keys")
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, server.public.encode())
    socket.setsockopt(zmq.CURVE_SECRETKEY, server.secret.encode())
    socket.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN.encode())
    socket.setsockopt(zmq.MAXMSGSIZE, GUEST_FRAME_BYTES)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)


def _notice_silence(socket: zmq.Socket[bytes], every_s: float, limit_s: float) -> None:
    """Drop a connection through which nothing comes: the next one is new, and so works at once."""
    socket.setsockopt(zmq.HEARTBEAT_IVL, max(1, int(every_s * 1000)))
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, max(1, int(limit_s * 1000)))


def _limit(socket: zmq.Socket[bytes]) -> None:
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    socket.setsockopt(zmq.SNDHWM, 10_000)
    socket.setsockopt(zmq.RCVHWM, 10_000)
