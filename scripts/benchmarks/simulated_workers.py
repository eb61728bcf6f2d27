"""Many simulated workers in one process: real sockets and messages, work that takes no time.

They talk to a real coordinator as that many actors would: a DEALER each, hello, heartbeats, results
that are stored until they are acknowledged and sent again to a new coordinator.  The results are
fabricated.  Only the benchmarks use this module.  One epoll watches all sockets, so a thousand idle
workers cost nothing.
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
    next_heartbeat_at: float = 0.0
    held: dict[str, Lease] = field(default_factory=dict)
    unacknowledged: dict[str, messages.Result] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    """The counts since the tally began."""

    begun_at: float
    tasks: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    dispatch_ms: list[float] = field(default_factory=list)  # from a result to the next work
    late_ms: list[float] = field(default_factory=list)  # of results, behind their schedule
    seconds: float = 0.0
    first_work_at: float | None = None  # of a coordinator that has just started

    @property
    def rate(self) -> float:
        """Return leases a second."""
        return self.tasks / self.seconds


class SimulatedWorkers:
    """All simulated workers, their sockets, and the schedule of their results."""

    def __init__(
        self, address: str, counts: Mapping[Role, int], *, source_bytes: int, calls: bool = False
    ) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 2 * sum(counts.values()) + 64)
        self._codec = codec.worker_codec()
        self._epoll = select.epoll()
        self._padding = "#" * source_bytes
        self._calls = calls
        self._past_epoch = 0  # of the coordinator before the awaited one
        self._rate: float | None = None  # results a second; None: at once
        self._due = 0.0
        self._held_work: deque[tuple[SimulatedWorker, messages.Work]] = deque()
        self._possible_at: dict[str, float] = {}  # expected work -> when it became possible
        self._workers: dict[int, SimulatedWorker] = {}
        self._heartbeat_queue: deque[SimulatedWorker] = deque()
        self.tally = Tally(begun_at=time.monotonic())
        for role, count in counts.items():
            for number in range(count):
                self._add_worker(address, role, f"{role}-{number}")
        # Real workers do not start at one instant, so their heartbeats are spread, too.
        for number, worker in enumerate(self._heartbeat_queue):
            worker.next_heartbeat_at = self.tally.begun_at + HEARTBEAT_S * number / len(
                self._heartbeat_queue
            )

    def _add_worker(self, address: str, role: Role, slot: str) -> None:
        incarnation = secrets.token_hex(8)
        socket = transport.connect(self._context, address, incarnation)
        worker = SimulatedWorker(socket=socket, role=role, slot=slot, incarnation=incarnation)
        self._workers[socket.FD] = worker
        self._heartbeat_queue.append(worker)
        self._epoll.register(socket.FD, select.EPOLLIN)

    # --- driving -----------------------------------------------------------------------------

    def serve(self, seconds: float) -> Tally:
        """Work for `seconds`; return the tally of that time."""
        self.tally = Tally(begun_at=time.monotonic())
        self._due = self.tally.begun_at
        until = self.tally.begun_at + seconds
        while (now := time.monotonic()) < until:
            self._turn(until, now)
        self.tally.seconds = time.monotonic() - self.tally.begun_at
        return self.tally

    def serve_until_back(self, epoch: int, limit_s: float) -> tuple[Tally, float]:
        """Work until a coordinator later than `epoch` has welcomed all; return tally and time."""
        self.tally = Tally(begun_at=time.monotonic())
        self._past_epoch = epoch
        until = self.tally.begun_at + limit_s
        while self.tally.first_work_at is None or self.welcomed_count(epoch) < len(self._workers):
            now = time.monotonic()
            if now > until:
                raise TimeoutError(f"{self.welcomed_count(epoch)} of {len(self._workers)} are back")
            self._turn(now + 0.05, now)
        return self.tally, time.monotonic()

    def set_rate(self, rate: float | None) -> None:
        """Send `rate` results a second from now on, by the clock alone; None: each at once."""
        self._rate = rate
        self._due = time.monotonic()

    def welcomed_count(self, epoch: int) -> int:
        """Return how many workers a coordinator later than `epoch` has welcomed."""
        return sum(worker.epoch > epoch for worker in self._workers.values())

    @property
    def epoch(self) -> int:
        """The latest coordinator's epoch."""
        return max(worker.epoch for worker in self._workers.values())

    def close(self) -> None:
        """Close every socket."""
        for worker in self._workers.values():
            worker.socket.close(0)
        self._context.term()
        self._epoll.close()

    def _turn(self, until: float, now: float) -> None:
        soonest = min(
            until, self._heartbeat_queue[0].next_heartbeat_at, self._due if self._rate else until
        )
        for descriptor, _ in self._epoll.poll(max(0.0, soonest - now), maxevents=256):
            self._serve_socket(self._workers[descriptor])
        now = time.monotonic()
        while self._rate and self._held_work and self._due <= now:
            worker, request = self._held_work.popleft()
            self._finish(worker, request, self._due)
            self.tally.late_ms.append((time.monotonic() - self._due) * 1000)
            self._due += 1.0 / self._rate
            self._serve_socket(worker)
        while self._heartbeat_queue[0].next_heartbeat_at <= now:
            worker = self._heartbeat_queue.popleft()
            worker.next_heartbeat_at = now + HEARTBEAT_S
            self._heartbeat_queue.append(worker)
            if worker.connected:
                self._beat(worker)
                self._serve_socket(worker)

    # --- one worker --------------------------------------------------------------------------

    def _serve_socket(self, worker: SimulatedWorker) -> None:
        """Read and answer all messages of a worker's socket."""
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
            self._receive(worker, self._codec.decode(frames))

    def _receive(self, worker: SimulatedWorker, message: messages.ToWorker) -> None:
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
                self._begin_work(worker, message)

    def _begin_work(self, worker: SimulatedWorker, request: messages.Work) -> None:
        now = time.monotonic()
        lease = request.lease
        tally = self.tally
        tally.tasks += 1
        if tally.first_work_at is None and worker.epoch > self._past_epoch:
            tally.first_work_at = now
        due = self._possible_at.pop(lease.work, None)
        if due is not None:
            tally.dispatch_ms.append((now - due) * 1000)
        worker.held[lease.work] = lease
        if self._rate is None:
            self._finish(worker, request, now)
        else:
            self._held_work.append((worker, request))

    def _finish(self, worker: SimulatedWorker, request: messages.Work, due: float) -> None:
        lease = request.lease
        if lease.work not in worker.held:
            return  # revoked in the meantime
        if self._calls and worker.role in AGENT_ROLES:
            call = Call(model="fabricated", request=self._padding * 5, reply=self._padding, usd=0.0)
            self._send(worker, messages.CallCompleted(lease=lease, call=call))
        result = fabricated_result(request, self._padding)
        worker.unacknowledged[lease.work] = result
        attempt, _, stage = lease.work.rpartition("/")
        if stage in NEXT_STAGE:
            self._possible_at[f"{attempt}/{NEXT_STAGE[stage]}"] = due
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
            pass  # not connected: it is sent again after the next Welcome


def fabricated_result(request: messages.Work, padding: str) -> messages.Result:
    """Return a result of the usual size; its content is a function of the work's name."""
    lease = request.lease
    match request:
        case messages.MeasureReference():
            return messages.ReferenceMeasured(lease=lease, reference=Reference(eager_us=100.0))
        case messages.MeasureBaselines():
            return messages.BaselinesMeasured(lease=lease)
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
