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
from protocol.values import AGENTS, Call, Candidate, Plan, Reference, Role, Verdict, Word

BEAT_S = 5.0
FOLLOWING = {"plan": "write", "write": "evaluate", "repair": "evaluate"}


@dataclass(slots=True)
class Member:
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


class Swarm:
    """All members, their sockets, and the clock that they say their results by."""

    def __init__(
        self, address: str, crew: Mapping[Role, int], *, source_bytes: int, calls: bool = False
    ) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 2 * sum(crew.values()) + 64)
        self._codec = codec.to_worker()
        self._epoll = select.epoll()
        self._padding = "#" * source_bytes
        self._calls = calls
        self._past = 0  # the epoch before the coordinator that is waited for
        self._rate: float | None = None  # results a second; None: at once
        self._due = 0.0
        self._in_hand: deque[tuple[Member, messages.Work]] = deque()
        self._said: dict[str, float] = {}  # the work that must follow -> when it became possible
        self._waiting: deque[Member] = deque()
        self._members: dict[int, Member] = {}
        self._beats: deque[Member] = deque()
        self.tally = Tally(began=time.monotonic())
        for role, count in crew.items():
            for number in range(count):
                self._enlist(address, role, f"{role}-{number}")
        # Real ones did not start in one instant, so they do not beat in one instant either.
        for number, member in enumerate(self._beats):
            member.next_beat = self.tally.began + BEAT_S * number / len(self._beats)

    def _enlist(self, address: str, role: Role, slot: str) -> None:
        incarnation = secrets.token_hex(8)
        socket = transport.connect(self._context, address, incarnation)
        member = Member(socket=socket, role=role, slot=slot, incarnation=incarnation)
        self._members[socket.FD] = member
        self._beats.append(member)
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
        while self.tally.first_work is None or self.welcomed(epoch) < len(self._members):
            now = time.monotonic()
            if now > until:
                raise TimeoutError(f"{self.welcomed(epoch)} of {len(self._members)} are back")
            self._turn(now + 0.05, now)
        return self.tally, time.monotonic()

    def pace(self, rate: float | None) -> None:
        """Say so many results a second from now on, by the clock alone; None: each at once."""
        self._rate = rate
        self._due = time.monotonic()

    def welcomed(self, epoch: int) -> int:
        """Return how many members a coordinator later than `epoch` has welcomed."""
        return sum(member.epoch > epoch for member in self._members.values())

    @property
    def epoch(self) -> int:
        """The latest coordinator's epoch."""
        return max(member.epoch for member in self._members.values())

    def close(self) -> None:
        """Close every socket."""
        for member in self._members.values():
            member.socket.close(0)
        self._context.term()
        self._epoll.close()

    def _turn(self, until: float, now: float) -> None:
        soonest = min(until, self._beats[0].next_beat, self._due if self._rate else until)
        for descriptor, _ in self._epoll.poll(max(0.0, soonest - now), maxevents=256):
            self._look(self._members[descriptor])
        now = time.monotonic()
        while self._rate and self._in_hand and self._due <= now:
            member, request = self._in_hand.popleft()
            self._finish(member, request, self._due)
            self.tally.late_ms.append((time.monotonic() - self._due) * 1000)
            self._due += 1.0 / self._rate
            self._look(member)
        while self._beats[0].next_beat <= now:
            member = self._beats.popleft()
            member.next_beat = now + BEAT_S
            self._beats.append(member)
            if member.connected:
                self._beat(member)
                self._look(member)

    # --- one member --------------------------------------------------------------------------

    def _look(self, member: Member) -> None:
        """Do all that a member's socket is ready for; leaves it with nothing to read."""
        socket = member.socket
        while True:
            events = int(socket.get(zmq.EVENTS))
            # An IMMEDIATE socket is writable exactly while it has a connection.
            if bool(events & zmq.POLLOUT) != member.connected:
                member.connected = not member.connected
                if member.connected:
                    self._hello(member)
                    continue
            if not events & zmq.POLLIN:
                return
            frames = socket.recv_multipart(zmq.NOBLOCK)
            self.tally.received_bytes += len(frames[1])
            self._heard(member, self._codec.decode(frames))

    def _heard(self, member: Member, message: messages.ToWorker) -> None:
        match message:
            case messages.Welcome():
                member.epoch = message.epoch
                for result in list(member.unacknowledged.values()):
                    self._send(member, result)
            case messages.Recorded() | messages.Revoke():
                member.held.pop(message.lease.work, None)
                member.unacknowledged.pop(message.lease.work, None)
            case messages.Who():
                self._hello(member)
            case messages.Refuse():
                raise RuntimeError(message.reason)
            case messages.Stored() | messages.Reserved() | messages.Retire() | messages.Heard():
                pass
            case _:
                self._work(member, message)

    def _work(self, member: Member, request: messages.Work) -> None:
        now = time.monotonic()
        lease = request.lease
        tally = self.tally
        tally.tasks += 1
        if tally.first_work is None and member.epoch > self._past:
            tally.first_work = now
        due = self._said.pop(lease.work, None)
        if due is not None:
            tally.dispatch_ms.append((now - due) * 1000)
        member.held[lease.work] = lease
        if self._rate is None:
            self._finish(member, request, now)
        else:
            self._in_hand.append((member, request))

    def _finish(self, member: Member, request: messages.Work, due: float) -> None:
        lease = request.lease
        if lease.work not in member.held:
            return  # revoked meanwhile
        if self._calls and member.role in AGENTS:
            call = Call(model="made-up", request=self._padding * 5, reply=self._padding, usd=0.0)
            self._send(member, messages.Answered(lease=lease, call=call))
        result = made_up(request, self._padding)
        member.unacknowledged[lease.work] = result
        attempt, _, stage = lease.work.rpartition("/")
        if stage in FOLLOWING:
            self._said[f"{attempt}/{FOLLOWING[stage]}"] = due
        self._send(member, result)

    def _hello(self, member: Member) -> None:
        self._send(
            member,
            messages.Hello(
                role=member.role,
                slot=member.slot,
                incarnation=member.incarnation,
                pid=1,
                holds=tuple(member.held.values()),
            ),
        )

    def _beat(self, member: Member) -> None:
        self._send(member, messages.Beat(holds=tuple(member.held.values())))

    def _send(self, member: Member, message: messages.Message) -> None:
        frames = self._codec.encode(message)
        try:
            member.socket.send_multipart(frames, zmq.NOBLOCK)
            self.tally.sent_bytes += len(frames[1])
        except zmq.Again:
            pass  # nobody is connected: it is said again after the next Welcome


def made_up(request: messages.Work, padding: str) -> messages.Result:
    """Return a result of the usual size; what it says is a function of the work's name."""
    lease = request.lease
    match request:
        case messages.Measure():
            return messages.Measured(lease=lease, reference=Reference(eager_us=100.0))
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
            return messages.Unusable(lease=lease, reason="not of the strategy that is measured")
        case messages.Evaluate():
            speedup = Random(lease.work).uniform(0.5, 3.0)
            verdict = Verdict(verdict=Word.CORRECT, median_us=100.0 / speedup, speedup=speedup)
            return messages.Evaluated(lease=lease, verdict=verdict)
