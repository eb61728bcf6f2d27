"""Thousands of connections without a handshake."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import structlog
import zmq
from net_run import RawGuest, free_port

from actors.coordinator.gateway.authenticator import LISTEN_PAUSE_S, Authenticator
from actors.supervisor import guest_tickets
from protocol import key_ring as ring_file
from protocol import transport
from protocol.settings import Settings
from protocol.values import Role

MAX_CONNECTIONS = 200


def open_connection(port: int) -> socket.socket | None:
    """Connect without a key; None when no process listens."""
    connection = socket.socket()
    if connection.connect_ex(("127.0.0.1", port)) == 0:
        return connection
    connection.close()
    return None


def test_too_many_connections_close_the_public_address_and_it_opens_again(tmp_path: Path) -> None:
    """Without free descriptors libzmq would abort; guests reconnect when the others are gone."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    ticket = guest_tickets.create_keys(
        tmp_path, Settings(tasks=("t",), listen=address), time.time()
    )
    key_ring = ring_file.read(tmp_path)
    assert key_ring is not None
    open_descriptors = os.dup(0)
    os.close(open_descriptors)
    limit = open_descriptors + MAX_CONNECTIONS
    authenticator = Authenticator(tmp_path, key_ring, structlog.get_logger(), limit)
    context = zmq.Context()
    authenticator.open(context)
    server = transport.listen(
        context, f"ipc://{tmp_path}/s", secured=(address,), server=key_ring.server
    )
    authenticator.attach(server, (address,))
    try:
        with ExitStack() as connections:
            authenticator.limit_connections(0.0)
            until = time.monotonic() + 20
            while (connection := open_connection(port)) is not None:
                connections.enter_context(connection)
                authenticator.limit_connections(1.0)
                assert time.monotonic() < until
        until = time.monotonic() + 20
        now = 1.0
        with RawGuest(address, ticket.credential(Role.EVALUATOR)) as guest:
            while not guest.wait_connected(0.2):
                now += LISTEN_PAUSE_S + 0.1
                authenticator.limit_connections(now)
                assert time.monotonic() < until
    finally:
        server.close(0)
        authenticator.close()
        context.term()
