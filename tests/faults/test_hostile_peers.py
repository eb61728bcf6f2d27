"""Unknown peers on the coordinator's socket: noise, other versions, forged names, huge frames."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import zmq
from fake_run import FakeRun

from protocol import codec, transport
from protocol.messages import Evaluated, Hello, Identify, Lease, Refuse
from protocol.values import Outcome, Role, Verdict


@pytest.fixture
def run(tmp_path: Path):
    run = FakeRun(tmp_path / "run", budget=6)
    run.start_all()
    yield run
    run.stop()


class UnknownPeer:
    """A DEALER socket that sends arbitrary frames to the coordinator."""

    def __init__(self, run: FakeRun, name: str) -> None:
        self.context = zmq.Context()
        path = os.path.relpath(run.run_dir / "coordinator.sock")
        self.socket = transport.connect(self.context, f"ipc://{path}", name)
        self.codec = codec.worker_codec()

    def send(self, frames: list[bytes]) -> None:
        self.socket.setsockopt(zmq.SNDTIMEO, 5000)
        self.socket.send_multipart(frames)

    def receive(self, timeout_s: float = 5.0) -> object:
        assert self.socket.poll(int(timeout_s * 1000))
        return self.codec.decode(self.socket.recv_multipart())

    def close(self) -> None:
        self.socket.close(0)
        self.context.term()


@pytest.fixture
def unknown_peer(run: FakeRun):
    while not (run.run_dir / "coordinator.sock").exists():
        time.sleep(0.01)
    unknown_peer = UnknownPeer(run, "unknown")
    yield unknown_peer
    unknown_peer.close()


def finish(run: FakeRun) -> None:
    run.wait()
    assert len(run.nodes()) == 7


def test_noise_is_refused_and_the_run_goes_on(run: FakeRun, unknown_peer: UnknownPeer) -> None:
    """Random bytes, too many frames and another major version affect only their sender."""
    other_major = codec.MAGIC[:-1] + b"\x09"
    for frames in ([b"\xff" * 100], [b"a", b"b", b"c"], [other_major, b""], [codec.MAGIC, b"\xc1"]):
        unknown_peer.send(frames)
        assert isinstance(unknown_peer.receive(), Refuse)
    finish(run)


def test_a_frame_beyond_the_limit_closes_that_connection_only(
    run: FakeRun, unknown_peer: UnknownPeer
) -> None:
    """A frame above the limit is never read into memory; other connections are not affected."""
    unknown_peer.send([codec.MAGIC, bytes(codec.MAX_FRAME_BYTES + 1)])
    finish(run)


def test_a_verdict_without_a_lease_is_refused(run: FakeRun, unknown_peer: UnknownPeer) -> None:
    """An unknown peer has to identify itself; a role may send its own messages only; a result needs
    a lease of its sender."""
    wire = codec.coordinator_codec()
    forged = Evaluated(
        lease=Lease(work="t/1/evaluate", epoch=1),
        verdict=Verdict(verdict=Outcome.CORRECT, median_us=0.001, speedup=1e6),
    )
    unknown_peer.send(wire.encode(forged))
    assert isinstance(unknown_peer.receive(), Identify)
    hello = Hello(role=Role.PLANNER, slot="spy", incarnation="unknown", pid=1, credit=0)
    unknown_peer.send(wire.encode(hello))
    unknown_peer.receive()
    unknown_peer.send(wire.encode(forged))
    assert isinstance(unknown_peer.receive(), Refuse)
    finish(run)
    assert run.rows("SELECT COUNT(*) FROM node WHERE score_us < 1.0") == [(0,)]


def test_an_incarnation_other_than_the_sockets_is_refused(
    run: FakeRun, unknown_peer: UnknownPeer
) -> None:
    """A peer can't send Hello in the name of another incarnation."""
    hello = Hello(role=Role.EVALUATOR, slot="evaluator-0", incarnation="another", pid=1)
    unknown_peer.send(codec.coordinator_codec().encode(hello))
    assert isinstance(unknown_peer.receive(), Refuse)
    finish(run)
