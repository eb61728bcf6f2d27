"""Sockets with the options that RELIABILITY asks for: ROUTER binds, DEALER connects.

ZeroMQ drops and duplicates nothing by itself while both ends live, and promises nothing when one
dies: acknowledgements, leases and resending are the actors' business, above this room.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import zmq
import zmq.utils.monitor

from protocol.codec import MAX_FRAME_BYTES

LINGER_MS = 500
RECONNECT_MS = 50
RECONNECT_MAX_MS = 1000
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")


class AddressTaken(OSError):
    """Something else listens there."""


def listen(context: zmq.Context[zmq.Socket[bytes]], address: str) -> zmq.Socket[bytes]:
    """Return a bound ROUTER; raise `AddressTaken` or OSError with one line."""
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.ROUTER_HANDOVER, 0)
    _limit(socket)
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        socket.close(0)
        if error.errno == zmq.EADDRINUSE:
            raise AddressTaken(f"{address} is in use") from error
        raise OSError(f"can't listen on {address}: {error.strerror}") from error
    if address.startswith("ipc://"):
        Path(address.removeprefix("ipc://")).chmod(0o600)
    return socket


def connect(
    context: zmq.Context[zmq.Socket[bytes]], address: str, identity: str
) -> zmq.Socket[bytes]:
    """Return a DEALER that connects whenever somebody listens at `address`.

    `identity` must be fresh for each process: ROUTER ignores a second peer of the same name.
    """
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, identity.encode())
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
    # Set before connecting: a peer that is not there yet must not swallow or block anything.
    _limit(socket)
    socket.connect(address)
    return socket


def connections(socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
    """Return a PAIR that becomes readable at every finished handshake of `socket`."""
    return socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)


def drain_connections(monitor: zmq.Socket[bytes]) -> int:
    """Read all waiting monitor events; return how many handshakes there were."""
    count = 0
    while monitor.poll(0):
        zmq.utils.monitor.recv_monitor_message(monitor)
        count += 1
    return count


def is_loopback(address: str) -> bool:
    """Whether `address` can be reached from this machine only."""
    if address.startswith(("ipc://", "inproc://")):
        return True
    return (urlsplit(address).hostname or "") in (*LOOPBACK, "::1")


def _limit(socket: zmq.Socket[bytes]) -> None:
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    socket.setsockopt(zmq.SNDHWM, 10_000)
    socket.setsockopt(zmq.RCVHWM, 10_000)
