"""An agent as a process of its own, with a coordinator that is a bare socket."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq
from agent_fakes import CANDIDATE, lease, make_plan, write
from messages_server import MessagesServer, answer

from actors.agents.replies.replies import fenced
from protocol import codec, settings, transport
from protocol.messages import (
    BudgetReserved,
    CallCompleted,
    CallStored,
    Hello,
    Message,
    Planned,
    ReserveBudget,
    ResultStored,
    Retire,
    Welcome,
    Write,
    Written,
)
from protocol.prices import Price
from protocol.values import Call, Plan, request_key

LINES = [
    {"role": "planner", "advice": "Fuse the two lines."},
    {"role": "coder", "code": CANDIDATE},
]
CANDIDATE_REPLY = f"## Candidate\n\n{fenced(CANDIDATE)}\n"
PATIENCE_MS = 20_000


class Coordinator:
    """A ROUTER that sends what a test tells it to."""

    def __init__(self, address: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = transport.listen(self._context, address)
        self._codec = codec.coordinator_codec()
        self._peer = b""

    def next(self, *kinds: type[Message]) -> Message:
        """Return the next message of one of `kinds`, and drop the others."""
        while self._socket.poll(PATIENCE_MS):
            self._peer, *frames = self._socket.recv_multipart()
            message = self._codec.decode(frames)
            if isinstance(message, kinds):
                return message
        raise AssertionError(f"no {kinds} came")

    def say(self, message: Message) -> None:
        self._socket.send_multipart([self._peer, *self._codec.encode(message)])

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close(0)
        self._context.term()


@contextmanager
def agent(run_dir: Path, role: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        *(sys.executable, "-m", "actors.agents", "--role", role, "--slot", f"{role}-0"),
        *("--connect", "ipc://c.sock", "--incarnation", secrets.token_hex(4)),
        *("--run-dir", str(run_dir), "--config", str(run_dir / settings.FILE_NAME)),
    ]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        command,
        cwd=run_dir,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def asked(coordinator: Coordinator, work: Write) -> Call:
    """Give `work` to the agent that says hello; return the call that the agent hands over."""
    coordinator.next(Hello)
    coordinator.say(Welcome(epoch=1, beat_s=5.0, lease_s=15.0))
    coordinator.say(work)
    answered = coordinator.next(CallCompleted)
    assert isinstance(answered, CallCompleted)
    return answered.call


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "script.jsonl"
    script.write_text("\n".join(json.dumps(line) for line in LINES), encoding="utf-8")
    settings.write(tmp_path, settings.Settings(model=f"script:{script}"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_plan_store_result_retire(run_dir: Path) -> None:
    """The reply is handed over first, and the plan follows after it is stored.  A retired agent
    ends with status 0, and its spool is empty.  Its log tells all of that."""
    with Coordinator("ipc://c.sock") as coordinator, agent(run_dir, "planner") as process:
        hello = coordinator.next(Hello)
        assert isinstance(hello, Hello)
        assert (hello.role, hello.slot, hello.credit) == ("planner", "planner-0", 1)
        coordinator.say(Welcome(epoch=1, beat_s=5.0, lease_s=15.0))
        coordinator.say(make_plan())
        answered = coordinator.next(CallCompleted)
        assert isinstance(answered, CallCompleted)
        assert "Fuse the two lines." in answered.call.reply
        assert list((run_dir / "spool").iterdir())
        coordinator.say(CallStored(lease=lease("plan")))
        planned = coordinator.next(Planned)
        assert isinstance(planned, Planned)
        assert planned.plan.advice == "Fuse the two lines."
        coordinator.say(ResultStored(lease=lease("plan")))
        coordinator.say(Retire())
        assert process.wait(PATIENCE_MS / 1000) == 0
    assert list((run_dir / "spool").iterdir()) == []
    log = (run_dir / "logs" / "planner-0.log").read_text(encoding="utf-8")
    events = [line.split(" ", 1)[1].split(",")[0] for line in log.splitlines()]
    assert events[0] == "up"
    assert events[-1] == "down"
    assert [event.removeprefix(f"{lease('plan').work}: ") for event in events[1:-1]] == [
        "leased",
        f"asking script:{run_dir / 'script.jsonl'} ({lease('plan').work})",
        "call ended",
        "released",
    ]


def test_killed_before_it_is_stored_the_next_one_finds_the_reply(run_dir: Path) -> None:
    """After kill -9 between reply and store, another process hands over the same reply."""
    work = write(Plan(advice="Write it.", scaffold=""))
    with Coordinator("ipc://c.sock") as coordinator:
        with agent(run_dir, "coder") as process:
            first = asked(coordinator, work)
            process.kill()
            process.wait()
        # A model would give another reply now.
        (run_dir / "script.jsonl").write_text('{"role": "coder", "reply": "something else"}')
        with agent(run_dir, "coder"):
            second = asked(coordinator, work)
            coordinator.say(CallStored(lease=lease("write")))
            written = coordinator.next(Written)
    assert first == second
    assert isinstance(written, Written)
    assert written.candidate.source == CANDIDATE


def test_a_late_second_acknowledgement_is_not_one_of_the_next_call(run_dir: Path) -> None:
    """An answer that can't be used is followed by a second call.  The first call was sent twice, so
    it is acknowledged twice: the second call is still handed over until it is stored itself."""
    line = {"role": "coder", "reply": "I would rather not.", "again": CANDIDATE_REPLY}
    (run_dir / "script.jsonl").write_text(json.dumps(line), encoding="utf-8")
    work = write(Plan(advice="Write it.", scaffold=""))
    with Coordinator("ipc://c.sock") as coordinator, agent(run_dir, "coder"):
        coordinator.next(Hello)
        coordinator.say(Welcome(epoch=1, beat_s=0.1, lease_s=15.0))
        coordinator.say(work)
        first = coordinator.next(CallCompleted)
        assert isinstance(first, CallCompleted)
        stored = CallStored(lease=work.lease, request_key=request_key(first.call.request))
        coordinator.say(stored)
        second = first
        while second == first:  # sent again until the acknowledgement came
            second = coordinator.next(CallCompleted)
        coordinator.say(stored)
        for _ in range(3):
            assert second == coordinator.next(CallCompleted, Written)
        assert isinstance(second, CallCompleted)
        key = request_key(second.call.request)
        coordinator.say(CallStored(lease=work.lease, request_key=key))
        written = coordinator.next(Written)
    assert isinstance(written, Written)
    assert written.candidate.source == CANDIDATE


def test_a_reply_from_a_real_server_is_bought_once(run_dir: Path) -> None:
    """Reservation, call, kill -9 before the reply is stored: the next process hands it over, and
    the server got one request."""
    work = write(Plan(advice="Write it.", scaffold=""))
    with (
        MessagesServer(answer(text=CANDIDATE_REPLY)) as server,
        Coordinator("ipc://c.sock") as coordinator,
    ):
        price = Price(input=1.0, output=10.0)
        settings.write(
            run_dir,
            settings.Settings(model="local", base_url=server.url, prices={"local": price}),
        )
        with agent(run_dir, "coder") as process:
            coordinator.next(Hello)
            coordinator.say(Welcome(epoch=1, beat_s=5.0, lease_s=15.0))
            coordinator.say(work)
            asked_for = coordinator.next(ReserveBudget)
            assert isinstance(asked_for, ReserveBudget)
            assert server.requests == []
            assert asked_for.usd is not None
            assert 0.16 < asked_for.usd < 0.2
            coordinator.say(BudgetReserved(lease=work.lease, call_number=asked_for.call_number))
            first = coordinator.next(CallCompleted)
            process.kill()
            process.wait()
        with agent(run_dir, "coder"):
            second = asked(coordinator, work)
            coordinator.say(CallStored(lease=lease("write")))
            written = coordinator.next(Written)
        assert len(server.requests) == 1
    assert isinstance(first, CallCompleted)
    assert first.call == second
    assert request_key(second.request) == asked_for.request_key
    assert isinstance(written, Written)


def test_an_unknown_model_ends_with_one_line(run_dir: Path) -> None:
    """Exit status 2 and one sentence, without a traceback."""
    settings.write(run_dir, settings.Settings(model="gpt-9"))

    with agent(run_dir, "planner") as process:
        _, stderr = process.communicate(timeout=PATIENCE_MS / 1000)

    assert process.returncode == 2
    assert stderr.decode().startswith("Unknown model 'gpt-9': expected ")
    assert stderr.decode().count("\n") == 1
