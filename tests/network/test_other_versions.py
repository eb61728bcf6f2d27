"""A machine that joins a run of another version, or another run at the same address."""

from __future__ import annotations

import time
from pathlib import Path

import zmq
from msgspec.structs import replace
from net_run import NetRun
from test_guests import join

from actors.supervisor.coordinator_client import CoordinatorClient
from protocol import key_ring, tickets
from protocol.codec import MAGIC


def refusal_after(tmp_path: Path, magic: bytes, times: int) -> str:
    """Return why a supervisor regards itself as refused after so many answers."""
    context = zmq.Context()
    address = f"ipc://{tmp_path}/s"
    with context.socket(zmq.ROUTER) as server:
        server.bind(address)
        coordinator = CoordinatorClient(address)
        for number in range(times):
            while not server.poll(10):
                coordinator.pump(time.monotonic() + 60 * number)
            server.send_multipart([server.recv_multipart()[0], magic, b"?"])
            until = time.monotonic() + 0.3
            while time.monotonic() < until and not coordinator.refusal_reason:
                coordinator.pump(time.monotonic())
        coordinator.close()
    context.term()
    return coordinator.refusal_reason


def test_another_major_version_is_reported_to_the_user(tmp_path: Path) -> None:
    """Several frames of another version end the join; a single one may be noise."""
    other = MAGIC[:-1] + bytes([MAGIC[-1] + 1])
    assert "protocol major 3, expected 2" in refusal_after(tmp_path, other, 3)
    assert refusal_after(tmp_path, other, 1) == ""
    assert refusal_after(tmp_path, b"noise!", 3) == ""


def test_a_ticket_of_the_former_run_at_that_address_is_reported(run: NetRun) -> None:
    """The new run at the same address has other keys: the guest waits, and says so."""
    path = run.run_dir / tickets.FILE_NAME
    tickets.write(path, replace(run.ticket, server=key_ring.new_key_pair().public))
    guest = join(run, "--planners", "1")
    assert guest.stdout is not None
    line = guest.stdout.readline()
    assert f"{run.address} is not run" in line
    guest.terminate()
    assert guest.wait(40) == 0
