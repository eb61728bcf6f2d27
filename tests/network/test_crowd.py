"""Strangers who knock by the thousand and say nothing."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import structlog
import zmq
from net_run import Visitor, free_port

from actors.coordinator.doorkeeper import SHUT_S, Doorkeeper
from actors.supervisor import keys
from protocol import ring as ring_file
from protocol import transport
from protocol.settings import Settings
from protocol.values import Role

CROWD = 200


def knock(port: int) -> socket.socket | None:
    """Connect as a stranger; None when nobody listens."""
    stranger = socket.socket()
    if stranger.connect_ex(("127.0.0.1", port)) == 0:
        return stranger
    stranger.close()
    return None


def test_a_crowd_of_strangers_shuts_the_door_and_it_opens_again(tmp_path: Path) -> None:
    """Out of descriptors libzmq would abort; guests come back when they are gone."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    ticket = keys.open_house(tmp_path, Settings(tasks=("t",), listen=address), time.time())
    ring = ring_file.read(tmp_path)
    assert ring is not None
    spare = os.dup(0)
    os.close(spare)
    door = Doorkeeper(tmp_path, ring, structlog.get_logger(), spare + CROWD)
    context = zmq.Context()
    door.open(context)
    server = transport.listen(
        context, f"ipc://{tmp_path}/s", secured=(address,), server=ring.server
    )
    door.guard(server, (address,))
    try:
        with ExitStack() as crowd:
            door.mind_crowd(0.0)
            until = time.monotonic() + 20
            while (stranger := knock(port)) is not None:  # until it is shut
                crowd.enter_context(stranger)
                door.mind_crowd(1.0)
                assert time.monotonic() < until
        until = time.monotonic() + 20
        now = 1.0
        with Visitor(address, ticket.credential(Role.EVALUATOR)) as guest:
            while not guest.up(0.2):
                now += SHUT_S + 0.1
                door.mind_crowd(now)
                assert time.monotonic() < until
    finally:
        server.close(0)
        door.close()
        context.term()
