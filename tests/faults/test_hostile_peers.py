"""Strangers on the coordinator's socket: noise, other majors, stolen names, huge frames."""

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
    """A DEALER that says whatever a test wants."""

    def __init__(self, run: FakeRun, name: str) -> None:
        self.context = zmq.Context()
        path = os.path.relpath(run.run_dir / "coordinator.sock")
        self.socket = transport.connect(self.context, f"ipc://{path}", name)
        self.codec = codec.worker_codec()

    def say(self, frames: list[bytes]) -> None:
        self.socket.setsockopt(zmq.SNDTIMEO, 5000)
        self.socket.send_multipart(frames)

    def hear(self, seconds: float = 5.0) -> object:
        assert self.socket.poll(int(seconds * 1000))
        return self.codec.decode(self.socket.recv_multipart())

    def close(self) -> None:
        self.socket.close(0)
        self.context.term()


@pytest.fixture
def stranger(run: FakeRun):
    while not (run.run_dir / "coordinator.sock").exists():
        time.sleep(0.01)
    stranger = UnknownPeer(run, "stranger")
    yield stranger
    stranger.close()


def finish(run: FakeRun) -> None:
    run.wait()
    assert len(run.nodes()) == 7


def test_noise_is_answered_with_a_refusal_and_the_run_goes_on(
    run: FakeRun, stranger: UnknownPeer
) -> None:
    """Random bytes, too many frames and another major hurt nobody but their sender."""
    other = codec.MAGIC[:-1] + b"\x09"
    for frames in ([b"\xff" * 100], [b"a", b"b", b"c"], [other, b""], [codec.MAGIC, b"\xc1"]):
        stranger.say(frames)
        assert isinstance(stranger.hear(), Refuse)
    finish(run)


def test_a_frame_beyond_the_limit_closes_that_connection_only(
    run: FakeRun, stranger: UnknownPeer
) -> None:
    """More than the largest message is never read into memory; the others do not notice."""
    stranger.say([codec.MAGIC, bytes(codec.MAX_FRAME_BYTES + 1)])
    finish(run)


def test_a_verdict_without_a_lease_is_not_taken(run: FakeRun, stranger: UnknownPeer) -> None:
    """Unknown peers are asked who they are; a role may say only its own; a lease has one holder."""
    wire = codec.coordinator_codec()
    lie = Evaluated(
        lease=Lease(work="t/1/evaluate", epoch=1),
        verdict=Verdict(verdict=Outcome.CORRECT, median_us=0.001, speedup=1e6),
    )
    stranger.say(wire.encode(lie))
    assert isinstance(stranger.hear(), Identify)
    hello = Hello(role=Role.PLANNER, slot="spy", incarnation="stranger", pid=1, credit=0)
    stranger.say(wire.encode(hello))
    stranger.hear()
    stranger.say(wire.encode(lie))
    assert isinstance(stranger.hear(), Refuse)
    finish(run)
    assert run.rows("SELECT COUNT(*) FROM node WHERE score_us < 1.0") == [(0,)]


def test_a_name_that_is_not_the_sockets_is_refused(run: FakeRun, stranger: UnknownPeer) -> None:
    """Nobody says Hello in another's name."""
    hello = Hello(role=Role.EVALUATOR, slot="evaluator-0", incarnation="somebody", pid=1)
    stranger.say(codec.coordinator_codec().encode(hello))
    assert isinstance(stranger.hear(), Refuse)
    finish(run)
