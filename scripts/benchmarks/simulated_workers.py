"""Many simulated workers in one process: real sockets and messages, work that takes no time.

Talks to a real coordinator as that many actors would: a DEALER each, hello, heartbeats, results
kept until they are acknowledged and said again to a new coordinator.  What a piece of work comes
to is made up.  Used by the benchmarks alone; one epoll over all sockets, so that a thousand idle
ones cost nothing.
"""

from __future__ import annotations

import secrets
import select
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import zmq

from protocol import codec, messages, transport
from protocol.messages import Lease
from protocol.values import AGENT_ROLES, Call, Candidate, Outcome, Plan, Reference, Role, Verdict

HEARTBEAT_S = 5.0
NEXT_STAGE = {"plan": "write", "write": "evaluate", "repair": "evaluate"}


@dataclass(slots=True)
class SimulatedWorker:
    """One simulated worker."""

    socket: zmq.Socket[bytes]
    role: Role
    slot: str
    incarnation: str
    connected: bool = False
    epoch: int = 0  # of the coordinator that welcomed it last
    next_beat: float = 0.0
    held: dict[str, Lease] = field(default_factory=dict)
    unacknowledged: dict[str, messages.Result] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    """What was seen since the tally began."""

    began: float
    tasks: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    dispatch_ms: list[float] = field(default_factory=list)  # next work in hand - result said
    late_ms: list[float] = field(default_factory=list)  # result said - its place in the schedule
    seconds: float = 0.0
    first_work: float | None = None  # a coordinator's first that was not there before

    @property
    def rate(self) -> float:
        """Return leases a second."""
        return self.tasks / self.seconds


class SimulatedWorkers:
    """All members, their sockets, and the clock that they say their results by."""

    def __init__(
        self, address: str, crew: Mapping[Role, int], *, source_bytes: int, calls: bool = False
    ) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 2 * sum(crew.values()) + 64)
        self._codec = codec.worker_codec()
        self._epoll = select.epoll()
        self._padding = "#" * source_bytes
        self._calls = calls
        self._past = 0  # the epoch before the coordinator that is waited for
        self._rate: float | None = None  # results a second; None: at once
        self._due = 0.0
        self._in_hand: deque[tuple[SimulatedWorker, messages.Work]] = deque()
        self._said: dict[str, float] = {}  # the work that must follow -> when it became possible
        self._waiting: deque[SimulatedWorker] = deque()
        self._members: dict[int, SimulatedWorker] = {}
        self._beats: deque[SimulatedWorker] = deque()
        self.tally = Tally(began=time.monotonic())
        for role, count in crew.items():
            for number in range(count):
                self._enlist(address, role, f"{role}-{number}")
        # Real ones did not start in one instant, so they do not beat in one instant either.
        for number, worker in enumerate(self._beats):
            worker.next_beat = self.tally.began + HEARTBEAT_S * number / len(self._beats)

    def _enlist(self, address: str, role: Role, slot: str) -> None:
        incarnation = secrets.token_hex(8)
        socket = transport.connect(self._context, address, incarnation)
        worker = SimulatedWorker(socket=socket, role=role, slot=slot, incarnation=incarnation)
        self._members[socket.FD] = worker
        self._beats.append(worker)
        self._epoll.register(socket.FD, select.EPOLLIN)

    # --- driving -----------------------------------------------------------------------------

    def serve(self, seconds: float) -> Tally:
        """Work for so long; return what was seen meanwhile."""
        self.tally = Tally(began=time.monotonic())
        self._due = self.tally.began
        until = self.tally.began + seconds
        while (now := time.monotonic()) < until:
            self._turn(until, now)
        self.tally.seconds = time.monotonic() - self.tally.began
        return self.tally

    def serve_until_back(self, epoch: int, limit_s: float) -> tuple[Tally, float]:
        """Work until a coordinator of a later `epoch` has welcomed all; return the moment."""
        self.tally = Tally(began=time.monotonic())
        self._past = epoch
        until = self.tally.began + limit_s
        while self.tally.first_work is None or self.welcomed_count(epoch) < len(self._members):
            now = time.monotonic()
            if now > until:
                raise TimeoutError(f"{self.welcomed_count(epoch)} of {len(self._members)} are back")
            self._turn(now + 0.05, now)
        return self.tally, time.monotonic()

    def set_rate(self, rate: float | None) -> None:
        """Say so many results a second from now on, by the clock alone; None: each at once."""
        self._rate = rate
        self._due = time.monotonic()

    def welcomed_count(self, epoch: int) -> int:
        """Return how many members a coordinator later than `epoch` has welcomed."""
        return sum(member.epoch > epoch for member in self._members.values())

    @property
    def epoch(self) -> int:
        """The latest coordinator's epoch."""
        return max(member.epoch for member in self._members.values())

    def close(self) -> None:
        """Close every socket."""
        for worker in self._members.values():
            worker.socket.close(0)
        self._context.term()
        self._epoll.close()

    def _turn(self, until: float, now: float) -> None:
        soonest = min(until, self._beats[0].next_beat, self._due if self._rate else until)
        for descriptor, _ in self._epoll.poll(max(0.0, soonest - now), maxevents=256):
            self._look(self._members[descriptor])
        now = time.monotonic()
        while self._rate and self._in_hand and self._due <= now:
            worker, request = self._in_hand.popleft()
            self._finish(worker, request, self._due)
            self.tally.late_ms.append((time.monotonic() - self._due) * 1000)
            self._due += 1.0 / self._rate
            self._look(worker)
        while self._beats[0].next_beat <= now:
            worker = self._beats.popleft()
            worker.next_beat = now + HEARTBEAT_S
            self._beats.append(worker)
            if worker.connected:
                self._beat(worker)
                self._look(worker)

    # --- one member --------------------------------------------------------------------------

    def _look(self, worker: SimulatedWorker) -> None:
        """Do all that a member's socket is ready for; leaves it with nothing to read."""
        socket = worker.socket
        while True:
            events = int(socket.get(zmq.EVENTS))
            # An IMMEDIATE socket is writable exactly while it has a connection.
            if bool(events & zmq.POLLOUT) != worker.connected:
                worker.connected = not worker.connected
                if worker.connected:
                    self._hello(worker)
                    continue
            if not events & zmq.POLLIN:
                return
            frames = socket.recv_multipart(zmq.NOBLOCK)
            self.tally.received_bytes += len(frames[1])
            self._heard(worker, self._codec.decode(frames))

    def _heard(self, worker: SimulatedWorker, message: messages.ToWorker) -> None:
        match message:
            case messages.Welcome():
                worker.epoch = message.epoch
                for result in list(worker.unacknowledged.values()):
                    self._send(worker, result)
            case messages.ResultStored() | messages.Revoke():
                worker.held.pop(message.lease.work, None)
                worker.unacknowledged.pop(message.lease.work, None)
            case messages.Identify():
                self._hello(worker)
            case messages.Refuse():
                raise RuntimeError(message.reason)
            case (
                messages.CallStored()
                | messages.BudgetReserved()
                | messages.Retire()
                | messages.HeartbeatAck()
            ):
                pass
            case _:
                self._work(worker, message)

    def _work(self, worker: SimulatedWorker, request: messages.Work) -> None:
        now = time.monotonic()
        lease = request.lease
        tally = self.tally
        tally.tasks += 1
        if tally.first_work is None and worker.epoch > self._past:
            tally.first_work = now
        due = self._said.pop(lease.work, None)
        if due is not None:
            tally.dispatch_ms.append((now - due) * 1000)
        worker.held[lease.work] = lease
        if self._rate is None:
            self._finish(worker, request, now)
        else:
            self._in_hand.append((worker, request))

    def _finish(self, worker: SimulatedWorker, request: messages.Work, due: float) -> None:
        lease = request.lease
        if lease.work not in worker.held:
            return  # revoked meanwhile
        if self._calls and worker.role in AGENT_ROLES:
            call = Call(model="made-up", request=self._padding * 5, reply=self._padding, usd=0.0)
            self._send(worker, messages.CallCompleted(lease=lease, call=call))
        result = fabricated_result(request, self._padding)
        worker.unacknowledged[lease.work] = result
        attempt, _, stage = lease.work.rpartition("/")
        if stage in NEXT_STAGE:
            self._said[f"{attempt}/{NEXT_STAGE[stage]}"] = due
        self._send(worker, result)

    def _hello(self, worker: SimulatedWorker) -> None:
        self._send(
            worker,
            messages.Hello(
                role=worker.role,
                slot=worker.slot,
                incarnation=worker.incarnation,
                pid=1,
                held_leases=tuple(worker.held.values()),
            ),
        )

    def _beat(self, worker: SimulatedWorker) -> None:
        self._send(worker, messages.Heartbeat(held_leases=tuple(worker.held.values())))

    def _send(self, worker: SimulatedWorker, message: messages.Message) -> None:
        frames = self._codec.encode(message)
        try:
            worker.socket.send_multipart(frames, zmq.NOBLOCK)
            self.tally.sent_bytes += len(frames[1])
        except zmq.Again:
            pass  # nobody is connected: it is said again after the next Welcome


def fabricated_result(request: messages.Work, padding: str) -> messages.Result:
    """Return a result of the usual size; what it says is a function of the work's name."""
    lease = request.lease
    match request:
        case messages.MeasureReference():
            return messages.ReferenceMeasured(lease=lease, reference=Reference(eager_us=100.0))
        case messages.MakePlan():
            plan = Plan(advice="advice", scaffold=request.node.source)
            return messages.Planned(lease=lease, plan=plan)
        case messages.Write():
            return messages.Written(
                lease=lease, candidate=Candidate(source=f"# {lease.work}\n{padding}")
            )
        case messages.Repair():
            return messages.Repaired(
                lease=lease, candidate=Candidate(source=f"# {lease.work}\n{padding}")
            )
        case messages.Solve() | messages.Reflect():
            return messages.ReplyUnusable(
                lease=lease, reason="not of the strategy that is measured"
            )
        case messages.Evaluate():
            speedup = Random(lease.work).uniform(0.5, 3.0)
            verdict = Verdict(verdict=Outcome.CORRECT, median_us=100.0 / speedup, speedup=speedup)
            return messages.Evaluated(lease=lease, verdict=verdict)
