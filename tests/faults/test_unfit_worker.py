"""A worker whose machine fails ends; what it holds is handed back, and no candidate is charged."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import zmq

from actors.actor import run_actor
from actors.identity import ActorIdentity
from actors.work_context import WorkContext, WorkerUnfitError
from protocol import codec, messages, transport
from protocol.messages import Lease
from protocol.values import Device, Role, Task

WAIT_MS = 10_000
TOP = Path(__file__).parents[2]


class FailingWorker:
    """A worker that fails at its second piece of work, while the first one is under way."""

    role = Role.EVALUATOR
    credit = 2
    device: Device | None = None

    def __init__(self) -> None:
        self.ended = threading.Event()

    def work(self, request: messages.Work, context: WorkContext) -> messages.HandedBack:
        context.candidate_running()
        if request.lease.epoch == 2:
            raise WorkerUnfitError("no process can be started")
        self.ended.wait()
        return messages.HandedBack(lease=request.lease)

    def close(self) -> None:
        self.ended.set()


def test_an_unfit_worker_hands_back_all_that_it_holds(tmp_path: Path) -> None:
    """Also the candidate that ran when another one's work found the machine unfit."""
    address = f"ipc://{tmp_path}/c.sock"
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = transport.listen(context, address)
    worker = subprocess.Popen(
        [sys.executable, __file__, address, str(tmp_path)],
        cwd=TOP,
        env={**os.environ, "PYTHONPATH": str(TOP)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        handed_back = _lease_two_and_hear(socket)
    finally:
        _, said = worker.communicate(timeout=WAIT_MS / 1000)
        socket.close()
        context.term()
    assert {1: "no process can be started", 2: "no process can be started"} == handed_back
    assert "WorkerUnfitError" in said


def _lease_two_and_hear(socket: zmq.Socket[bytes]) -> dict[int, str]:
    """Lease two tasks to the worker; return the reasons with which it hands them back."""
    coordinator = codec.coordinator_codec()
    reasons: dict[int, str] = {}
    while len(reasons) < 2:
        if not socket.poll(WAIT_MS):
            pytest.fail(f"only {reasons} came back")
        sender, *frames = socket.recv_multipart()
        match coordinator.decode(frames):
            case messages.Hello():
                for number in (1, 2):
                    work = messages.MeasureReference(
                        lease=Lease(work=f"task{number}/measure", epoch=number),
                        task=Task(name=f"task{number}", source=""),
                    )
                    socket.send_multipart([sender, *coordinator.encode(work)])
            case messages.HandedBack() as back:
                reasons[back.lease.epoch] = back.reason
    return reasons


if __name__ == "__main__":
    run_actor(
        FailingWorker(),
        ActorIdentity(
            address=sys.argv[1], slot="evaluator-0", incarnation="i", run_dir=Path(sys.argv[2])
        ),
    )
