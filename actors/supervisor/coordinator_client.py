"""The supervisor's own line to the coordinator: who died, and when to drain.

A coordinator may be dead or not yet there when a child dies, so every loss is kept and said again
to each new coordinator; saying one twice does no harm.
"""

from __future__ import annotations

import math
import os
import secrets
import time
from collections import deque

import zmq

from actors import failpoints
from protocol import codec, transport
from protocol.messages import (
    Drain,
    Heartbeat,
    HeartbeatAck,
    Hello,
    Identify,
    Message,
    Refuse,
    Retire,
    Welcome,
    WorkerLost,
)
from protocol.tickets import ConnectionCredential
from protocol.values import Role

SLOT = "supervisor"
MAX_REMEMBERED_LOSSES = 64  # losses said again after a new coordinator's welcome
# Beats without an answer before the coordinator counts as hung.  Counted, not timed: while we are
# stopped ourselves (Ctrl-Z) we beat no more, and a coordinator that nobody asks is not silent.
MAX_UNANSWERED = 4
MAX_UNANSWERED_AT_FIRST = 30  # before its first word: a long run takes time to be read from disk
MIN_UNRESPONSIVE_S = 5.0
UNWELCOMED_HEARTBEAT_S = 2.0
MAX_INVALID_FRAMES = 3  # answers of another major before the first welcome: that is no noise


class CoordinatorClient:
    """A DEALER that never blocks; `pump` is called at every turn of the loop."""

    def __init__(
        self, address: str, *, slot: str = SLOT, credential: ConnectionCredential | None = None
    ) -> None:
        self.refusal_reason = ""  # the coordinator's reason, when it would not have us
        self.is_retired = ""  # its reason, when it needs this machine no longer
        self.is_denied = False  # our key opens nothing there
        self.has_key_mismatch = False  # whoever listens there does not have the run's key
        self.last_heard = -math.inf  # when the coordinator's last word came, on the monotonic clock
        self.welcome: Welcome | None = None  # the last one
        self._codec = codec.worker_codec()
        self._incarnation = secrets.token_hex(8)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._connection = transport.Connection(
            self._context, address, self._incarnation, credential
        )
        self._socket = self._connection.socket
        self._slot = slot
        self._losses: deque[WorkerLost] = deque(maxlen=MAX_REMEMBERED_LOSSES)
        self._draining = False
        self._beat_s = UNWELCOMED_HEARTBEAT_S
        self._next_beat = 0.0
        self.silent: tuple[str, ...] = ()  # incarnations that the coordinator hears no more
        self.trouble = ""  # why the coordinator can't go on just now
        self.rtt_ms: float | None = None
        self._welcomed = False
        self._foreign = 0
        self._unanswered: list[float] = []  # when the beats were sent that wait for an answer

    @property
    def descriptors(self) -> tuple[int, int]:
        """What becomes readable when there may be something to pump."""
        return self._socket.FD, self._connection.monitor.FD

    def pump(self, now: float) -> None:
        """Read all that has come, answer it, and beat when it is time."""
        events = self._connection.poll_events(now)
        self.is_denied |= events.key_rejected
        self.has_key_mismatch |= events.server_key_mismatch
        if events.connected:
            self._hello()
        while self._socket.poll(0):
            frames = self._socket.recv_multipart(zmq.NOBLOCK)
            try:
                message = self._codec.decode(frames)
            except codec.ProtocolVersionError as error:
                self._foreign += 1
                if self.welcome is None and self._foreign >= MAX_INVALID_FRAMES:
                    self.refusal_reason = f"{error}: the run has another version of this program"
                continue
            except codec.FrameError:
                continue  # whatever it was, it was not for us; losses are said again anyway
            failpoints.hit_message("hear", message)
            self.last_heard = now
            self._on_message(message)
            failpoints.hit_message("heard", message)
        if now >= self._next_beat:
            self._next_beat = now + self._beat_s
            self._unanswered.append(now)
            self._send(Heartbeat(credit=0, activity="supervising", sent_at=now, rtt_ms=self.rtt_ms))

    def is_unresponsive(self, since: float, now: float) -> bool:
        """Whether a coordinator that began at `since` left so many beats unanswered that it hangs.

        Both on the monotonic clock.
        """
        waiting = [sent for sent in self._unanswered if sent >= since]
        allowed = MAX_UNANSWERED if self._welcomed else MAX_UNANSWERED_AT_FIRST
        return len(waiting) >= allowed and now - waiting[0] >= MIN_UNRESPONSIVE_S

    def coordinator_restarted(self) -> None:
        """The coordinator is dead: what it did not answer is no fault of the next one."""
        self._welcomed = False
        self._unanswered.clear()
        self.silent = ()  # what troubles the store is not over with a coordinator's death

    def report_lost(self, slot: str, incarnation: str, how: str) -> None:
        """Tell the coordinator that a worker is dead."""
        loss = WorkerLost(slot=slot, incarnation=incarnation, exit_description=how)
        self._losses.append(loss)
        self._send(loss)

    def drain(self) -> None:
        """Ask the coordinator to end when what runs has ended; also the next one, if it dies."""
        self._draining = True
        self._send(Drain())

    def close(self, *, said: bool = False) -> None:
        """Hang up; with `said`, give the last words a moment to leave."""
        self._connection.close(None if said else 0)
        self._context.term()

    def _on_message(self, message: Message) -> None:
        self._unanswered.clear()
        match message:
            case HeartbeatAck():
                self.rtt_ms = (time.monotonic() - message.sent_at) * 1000
                self.silent, self.trouble = message.silent_incarnations, message.coordinator_problem
            case Welcome():
                self._welcomed = True
                self.welcome = message
                self._beat_s = message.beat_s
                for loss in self._losses:
                    self._send(loss)
                if self._draining:
                    self._send(Drain())
            case Identify():
                self._hello()
            case Refuse():
                self.refusal_reason = message.reason
            case Retire():
                self.is_retired = message.reason or "told to leave"
            case _:
                pass  # work and receipts are for workers

    def _hello(self) -> None:
        self._send(
            Hello(
                role=Role.SUPERVISOR,
                slot=self._slot,
                incarnation=self._incarnation,
                pid=os.getpid(),
                credit=0,
            )
        )

    def _send(self, message: Message) -> None:
        for frames in failpoints.frames_to_send(message, self._codec.encode(message)):
            try:
                self._socket.send_multipart(frames, zmq.NOBLOCK)
            except zmq.Again:
                return  # nobody is there; the next Welcome brings it up again
        failpoints.hit_message("sent", message)
