"""The supervisor's own connection to the coordinator: it reports dead workers and asks to drain.

A coordinator may be dead or not yet started when a child dies.  So every loss is stored and sent
again to each new coordinator; a loss that arrives twice does no harm.
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
MAX_REMEMBERED_LOSSES = 64  # losses sent again after a new coordinator's welcome
# Heartbeats without an answer before the coordinator counts as hung.  Counted, not timed: a process
# that is stopped (Ctrl-Z) sends no heartbeats, and the coordinator has nothing to answer.
MAX_UNANSWERED = 4
MAX_UNANSWERED_AT_FIRST = 30  # before its first message: a long run takes time to be read from disk
MIN_UNRESPONSIVE_S = 5.0
UNWELCOMED_HEARTBEAT_S = 2.0
MAX_INVALID_FRAMES = 3  # answers of another major before the first welcome; fewer may be noise


class CoordinatorClient:
    """A DEALER that never blocks; the supervision loop calls `pump` at every turn."""

    def __init__(
        self, address: str, *, slot: str = SLOT, credential: ConnectionCredential | None = None
    ) -> None:
        self.refusal_reason = ""  # why the coordinator refuses this supervisor
        self.retire_reason = ""  # why the coordinator does not need this machine any more
        self.is_denied = False  # the coordinator does not accept our key
        self.has_key_mismatch = False  # the process at that address does not have the run's key
        self.last_heard = -math.inf  # when its last message came, on the monotonic clock
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
        self._heartbeat_s = UNWELCOMED_HEARTBEAT_S
        self._next_heartbeat = 0.0
        self.silent: tuple[str, ...] = ()  # incarnations from which it hears nothing
        self.trouble = ""  # why the coordinator can't go on at the moment
        self.rtt_ms: float | None = None
        self._welcomed = False
        self._invalid_frames = 0
        self._unanswered: list[float] = []  # times of the heartbeats that wait for an answer

    @property
    def descriptors(self) -> tuple[int, int]:
        """The descriptors that become readable when `pump` may have something to do."""
        return self._socket.FD, self._connection.monitor.FD

    def pump(self, now: float) -> None:
        """Read and answer all messages that have come; send a heartbeat when it is due."""
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
                self._invalid_frames += 1
                if self.welcome is None and self._invalid_frames >= MAX_INVALID_FRAMES:
                    self.refusal_reason = f"{error}: the run has another version of this program"
                continue
            except codec.FrameError:
                continue  # not a message for us; losses are sent again anyway
            failpoints.hit_message("hear", message)
            self.last_heard = now
            self._on_message(message)
            failpoints.hit_message("heard", message)
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + self._heartbeat_s
            self._unanswered.append(now)
            self._send(Heartbeat(credit=0, activity="supervising", sent_at=now, rtt_ms=self.rtt_ms))

    def is_unresponsive(self, since: float, now: float) -> bool:
        """Whether a coordinator that started at `since` hangs: too many heartbeats are unanswered.

        Both times are on the monotonic clock.
        """
        waiting = [sent for sent in self._unanswered if sent >= since]
        allowed = MAX_UNANSWERED if self._welcomed else MAX_UNANSWERED_AT_FIRST
        return len(waiting) >= allowed and now - waiting[0] >= MIN_UNRESPONSIVE_S

    def coordinator_restarted(self) -> None:
        """Forget what a dead coordinator did not answer: the next one is not to blame for it."""
        self._welcomed = False
        self._unanswered.clear()
        self.silent = ()  # `trouble` stays: a full disk is not over with the coordinator's death

    def report_lost(self, slot: str, incarnation: str, description: str) -> None:
        """Tell the coordinator that a worker is dead."""
        loss = WorkerLost(slot=slot, incarnation=incarnation, exit_description=description)
        self._losses.append(loss)
        self._send(loss)

    def drain(self) -> None:
        """Ask this coordinator, and the next one if it dies, to end after the running work."""
        self._draining = True
        self._send(Drain())

    def close(self, *, flush: bool = False) -> None:
        """Close the connection; with `flush`, give the last messages time to be sent."""
        self._connection.close(None if flush else 0)
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
                self._heartbeat_s = message.beat_s
                for loss in self._losses:
                    self._send(loss)
                if self._draining:
                    self._send(Drain())
            case Identify():
                self._hello()
            case Refuse():
                self.refusal_reason = message.reason
            case Retire():
                self.retire_reason = message.reason or "told to leave"
            case _:
                pass  # other messages are for workers

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
                return  # not connected; the next Welcome causes it to be sent again
        failpoints.hit_message("sent", message)
