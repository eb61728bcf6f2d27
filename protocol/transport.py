"""Sockets with the options of `docs/reliability.md`, rule 1: ROUTER binds, DEALER connects.

ZeroMQ neither drops nor duplicates messages while both ends live, and promises nothing when one
dies: the actors add acknowledgements, leases and resending.
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
RECONNECT_MAX_MS = 250  # workers are back within a second after the coordinator's restart
BACKLOG = 4096  # a whole fleet reconnects at once; beyond it a connection is tried again in 1 s
RECONNECT_AFTER_S = 2.0  # without an attempt, after which libzmq does not reconnect by itself
CONNECT_MS = 3000  # the kernel's own timeout would outlast a partition by a minute
HANDSHAKE_MS = 10_000
GUEST_FRAME_BYTES = 16 * 1024 * 1024  # the largest message from another machine
ZAP_DOMAIN = "stark"
CONNECTING_EVENTS = zmq.EVENT_CONNECTED | zmq.EVENT_CONNECT_DELAYED | zmq.EVENT_CONNECT_RETRIED


class AddressInUseError(OSError):
    """Another process listens at the address."""


def listen(
    context: zmq.Context[zmq.Socket[bytes]],
    address: str,
    *,
    secured: Sequence[str] = (),
    server: CurveKeyPair | None = None,
    beat_s: float = 5.0,
) -> zmq.Socket[bytes]:
    """Return a ROUTER bound to `address`; raise `AddressInUseError` or OSError with one line.

    It also listens at the `secured` addresses, with CURVE and the `server`'s keys only; there a ZAP
    handler admits connections.
    """
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.ROUTER_HANDOVER, 0)
    socket.setsockopt(zmq.BACKLOG, BACKLOG)
    _limit(socket)
    try:
        _bind(socket, address)
        # Socket options take effect for the addresses that are bound afterwards.
        if secured:
            _secure(socket, server)
            # Sooner than the peer: its next connection has the same name, which must be free.
            _notice_silence(socket, beat_s, 2 * beat_s)
        for other in secured:
            socket.setsockopt(zmq.IPV6, "[" in other)
            _bind(socket, other)
    except OSError:
        socket.close(0)
        raise
    return socket


def stop_listening(socket: zmq.Socket[bytes], addresses: Sequence[str]) -> None:
    """Accept no further connection at these addresses."""
    for address in addresses:
        with suppress(zmq.ZMQError):  # it is closed already
            socket.unbind(address)


def resume_listening(socket: zmq.Socket[bytes], addresses: Sequence[str]) -> None:
    """Listen at these addresses again; raise OSError with one line when that fails."""
    for address in addresses:
        socket.setsockopt(zmq.IPV6, "[" in address)
        _bind(socket, address)


def connect(
    context: zmq.Context[zmq.Socket[bytes]],
    address: str,
    identity: str,
    credential: ConnectionCredential | None = None,
) -> zmq.Socket[bytes]:
    """Return a DEALER that connects whenever a ROUTER listens at `address`.

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
    # Set before connecting: an absent peer must neither take messages nor block.
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
    """The events of a connection since the last poll."""

    connected: bool = False  # a handshake was finished: say Hello
    key_rejected: bool = False  # the server refuses our key: unknown, expired or revoked
    server_key_mismatch: bool = False  # the server does not have the key that we expect


class Connection:
    """A DEALER, the events of its connection, and reconnecting.

    After a protocol error (a flipped byte under CURVE) libzmq ends a connection for good.
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
        self._disconnected_at: float | None = None  # None: connected, or libzmq tries to connect
        # Before connecting: otherwise the events of the first handshake could be missed.
        self.monitor = self.socket.get_monitor_socket(
            CONNECTING_EVENTS
            | zmq.EVENT_HANDSHAKE_SUCCEEDED
            | zmq.EVENT_HANDSHAKE_FAILED_AUTH
            | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
            | zmq.EVENT_DISCONNECTED
        )
        self.socket.connect(address)

    def poll_events(self, now: float) -> ConnectionEvents:
        """Read the events; connect again where libzmq has given up."""
        connected = rejected = mismatch = False
        while self.monitor.poll(0):
            event = zmq.utils.monitor.recv_monitor_message(self.monitor)["event"]
            connected |= event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            rejected |= event == zmq.EVENT_HANDSHAKE_FAILED_AUTH
            mismatch |= event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
            if event == zmq.EVENT_DISCONNECTED:
                self._disconnected_at = now
            elif event & CONNECTING_EVENTS:
                self._disconnected_at = None
        if self._disconnected_at is not None and now - self._disconnected_at > RECONNECT_AFTER_S:
            self._disconnected_at = now
            with suppress(zmq.ZMQError):  # it may have forgotten the address already
                self.socket.disconnect(self._address)
            self.socket.connect(self._address)
        return ConnectionEvents(
            connected=connected, key_rejected=rejected, server_key_mismatch=mismatch
        )

    def close(self, linger_ms: int | None = None) -> None:
        """Close the connection; queued messages have `linger_ms` to leave (None: `LINGER_MS`)."""
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
    """Drop a connection without traffic: a new one works at once where the old one is dead."""
    socket.setsockopt(zmq.HEARTBEAT_IVL, max(1, int(every_s * 1000)))
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, max(1, int(limit_s * 1000)))


def _limit(socket: zmq.Socket[bytes]) -> None:
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    socket.setsockopt(zmq.SNDHWM, 10_000)
    socket.setsockopt(zmq.RCVHWM, 10_000)
