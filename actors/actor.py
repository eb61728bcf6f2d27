"""The one loop that every worker runs: hello, work, heartbeat, resend, drain.

The loop's thread owns the socket; each lease runs in a thread of its own, which reports through its
`WorkContext`.  A result is kept and sent again until the coordinator acknowledges it.  An exception
in a piece of work is a bug of ours: the actor ends with status 1 and the supervisor starts the next
one.  Before a `WorkerUnfitError` ends it, it hands back all its leases: no candidate is charged.
"""

from __future__ import annotations

import itertools
import os
import queue
import sys
import threading
import time

import zmq

from actors import failpoints
from actors.deadlines import WORKER_DRAIN_S
from actors.exit_status import ExitStatus
from actors.held_leases import HeldLeases
from actors.identity import ActorIdentity, credential_for, name_process
from actors.lifeline import hold_lifeline, on_terminate
from actors.log import open_log
from actors.work_context import LeaseContext, WorkDone, Worker, WorkerUnfitError
from protocol import codec, transport
from protocol.messages import (
    BudgetReserved,
    CallsBlocked,
    CallStored,
    CandidateRunning,
    HandedBack,
    Heartbeat,
    HeartbeatAck,
    Hello,
    Identify,
    Message,
    Refuse,
    ResultStored,
    Retire,
    Revoke,
    Welcome,
    Work,
)

ACTIVITY_UPDATE_S = 0.2  # a change of the activity is reported this soon
# Until the Welcome: a Hello may get lost, and an unknown heartbeat is answered with `Identify`.
UNWELCOMED_HEARTBEAT_S = 1.0


class Actor:
    """One worker process in its slot."""

    def __init__(self, worker: Worker, identity: ActorIdentity) -> None:
        self.worker = worker
        self.identity = identity
        self.log = open_log(identity.run_dir, identity.slot)
        self._codec = codec.worker_codec()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        key = credential_for(identity, worker.role)
        self._connection = transport.Connection(
            self._context, identity.address, identity.incarnation, key
        )
        self._socket = self._connection.socket
        self._held_leases = HeldLeases()
        self._call_numbers = itertools.count(1)
        self._thread_reports: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._beat_s = UNWELCOMED_HEARTBEAT_S
        # After the Hello: an unknown worker's heartbeat is answered with `Identify`.
        self._next_beat = time.monotonic() + UNWELCOMED_HEARTBEAT_S
        self._next_resend = 0.0
        self._rtt_ms: float | None = None
        self._activity = ""
        self._draining_until: float | None = None
        self._exit: int | None = None

    def run(self) -> int:
        """Work until retired, refused or drained; return the exit status."""
        self.log.info("up", pid=os.getpid(), role=self.worker.role)
        poller = zmq.Poller()
        for source in (self._socket, self._connection.monitor, self._wake):
            poller.register(source, zmq.POLLIN)
        while self._exit is None:
            ready = dict(poller.poll(self._poll_ms(time.monotonic())))
            if self._connection.poll_events(time.monotonic()).connected:
                self._hello()
            if self._wake in ready:
                os.eventfd_read(self._wake)
            self._read_socket()
            self._read_threads()
            self._keep_time(time.monotonic())
        self.log.info("down", status=self._exit)
        self._connection.close()
        self._context.term()
        return self._exit

    def drain(self) -> None:
        """Take no more work and leave soon; safe to call from a signal handler."""
        if self._draining_until is None:
            self._draining_until = time.monotonic() + WORKER_DRAIN_S
        self._report(Retire())

    # --- outgoing ----------------------------------------------------------------------------

    def _report(self, report: object) -> None:
        self._thread_reports.put(report)
        os.eventfd_write(self._wake, 1)

    def _send(self, message: Message) -> None:
        for frames in failpoints.frames_to_send(message, self._codec.encode(message)):
            try:
                self._socket.send_multipart(frames, zmq.NOBLOCK)
            except zmq.Again:
                # There is no connection; the next Welcome makes the worker resend what matters.
                self.log.info("unsent", message=type(message).__name__)
        failpoints.hit_message("sent", message)

    @property
    def _credit(self) -> int:
        return 0 if self._draining_until is not None else self.worker.credit

    def _hello(self) -> None:
        self._send(
            Hello(
                role=self.worker.role,
                slot=self.identity.slot,
                incarnation=self.identity.incarnation,
                pid=os.getpid(),
                credit=self._credit,
                held_leases=self._held_leases.leases(),
                device=self.worker.device,
            )
        )

    def _beat(self) -> None:
        self._send(
            Heartbeat(
                held_leases=self._held_leases.leases(),
                credit=self._credit,
                activity=self._activity,
                sent_at=time.monotonic(),
                rtt_ms=self._rtt_ms,
            )
        )

    # --- incoming ----------------------------------------------------------------------------

    def _read_socket(self) -> None:
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                message = self._codec.decode(frames)
            except codec.FrameError as error:
                self.log.warning("bad frame", error=str(error))
                continue
            failpoints.hit_message("hear", message)
            self._receive(message)
            failpoints.hit_message("heard", message)

    def _receive(self, message: Message) -> None:
        match message:
            case Welcome():
                self._beat_s = message.beat_s
                for unacknowledged in self._held_leases.messages_to_resend():
                    self._send(unacknowledged)
            case Identify():
                self._hello()
            case Refuse():
                self.log.error("refused", reason=message.reason)
                self._exit = ExitStatus.REFUSED
            case HeartbeatAck():
                self._rtt_ms = (time.monotonic() - message.sent_at) * 1000
            case ResultStored():
                self._held_leases.acknowledge(message.lease)
            case CallStored() | BudgetReserved():
                self._on_stored(message)
            case Revoke():
                self._on_revoked(message)
            case Retire():
                self.drain()
            case _:
                self._start(message)  # type: ignore[arg-type]  # all that is left is Work

    def _on_revoked(self, message: Revoke) -> None:
        if self._held_leases.is_under_way(message.lease.work):
            self.log.info("lease revoked", work=message.lease.work)
        self._held_leases.revoke(message.lease)

    def _on_stored(self, message: CallStored | BudgetReserved) -> None:
        """Wake the work that waits for the coordinator's disk."""
        held_lease = self._held_leases.get(message.lease.work)
        if held_lease is None:
            return
        with held_lease.call_stored:
            if isinstance(message, CallStored):
                held_lease.call_is_stored(message.request_key)
            elif (
                held_lease.pending_reservation is not None
                and held_lease.pending_reservation.call_number == message.call_number
            ):
                held_lease.pending_reservation = None
            held_lease.call_stored.notify_all()

    def _start(self, request: Work) -> None:
        held_lease = self._held_leases.add(request.lease)
        if held_lease is None:
            self._beat()
            return
        log = self.log.bind(work=request.lease.work)
        log.info("leased", lease=request.lease.epoch)
        context = LeaseContext(held_lease, self._report, self._call_numbers, log)
        threading.Thread(
            target=self._perform, args=(request, context), name=request.lease.work, daemon=True
        ).start()

    def _perform(self, request: Work, context: LeaseContext) -> None:
        try:
            failpoints.hit("before-work")
            result = self.worker.work(request, context)
            failpoints.hit("after-work")
            self._report(WorkDone(request.lease.work, result))
        except BaseException as error:  # noqa: BLE001  # the outermost line: the actor ends with it
            self._report(error)

    def _read_threads(self) -> None:
        while True:
            try:
                report = self._thread_reports.get_nowait()
            except queue.Empty:
                return
            self._on_thread_report(report)

    def _on_thread_report(self, report: object) -> None:
        match report:
            case str():
                self._activity = report
                self._next_beat = min(self._next_beat, time.monotonic() + ACTIVITY_UPDATE_S)
            case WorkDone():
                self._finished(report)
            case CandidateRunning():
                held_lease = self._held_leases.get(report.lease.work)
                if held_lease is not None:
                    held_lease.running = True
                self._send(report)
            case Retire():
                self._held_leases.stop_all()
                self._beat()
            case Message():
                self._send(report)
            case WorkerUnfitError():
                self.log.error("unfit", reason=str(report))
                self._hand_back_unfinished(str(report))
                raise report
            case BaseException():
                self.log.error("bug", exc_info=report)
                raise report

    def _finished(self, done: WorkDone) -> None:
        self._activity = ""
        result = done.result
        if isinstance(result, CallsBlocked):
            self._send(result)
            result = HandedBack(lease=result.lease, reason=result.reason)
        held_lease = self._held_leases.get(done.work)
        unacknowledged = self._held_leases.set_result(done.work, result)
        self.log.info(
            "released" if unacknowledged is not None else "dropped: the lease was revoked",
            work=done.work,
            result=type(result).__name__,
            seconds=round(time.monotonic() - held_lease.began, 3) if held_lease else None,
            **({"reason": result.reason} if isinstance(result, HandedBack) else {}),
        )
        if unacknowledged is not None:
            self._send(unacknowledged)

    # --- time --------------------------------------------------------------------------------

    def _poll_ms(self, now: float) -> int:
        soonest = min(self._next_beat, self._next_resend)
        if self._draining_until is not None:
            soonest = min(soonest, self._draining_until, now + 0.1)
        return max(0, min(1000, int((soonest - now) * 1000) + 1))

    def _keep_time(self, now: float) -> None:
        if now >= self._next_beat:
            self._next_beat = now + self._beat_s
            self._beat()
        if now >= self._next_resend:
            self._next_resend = now + self._beat_s
            for unacknowledged in self._held_leases.messages_to_resend():
                self._send(unacknowledged)
        if self._draining_until is not None and (
            not len(self._held_leases) or now >= self._draining_until
        ):
            self._hand_back_unfinished("not done in time to leave")
            self._exit = 0

    def _hand_back_unfinished(self, reason: str) -> None:
        for lease in self._held_leases.unfinished():
            self._send(HandedBack(lease=lease, reason=reason))


def run_actor(worker: Worker, identity: ActorIdentity) -> int:
    """Run `worker` as `identity` until it is retired; return the process's exit status."""
    name_process(identity.slot)
    try:
        failpoints.arm(identity.slot, identity.run_dir)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return ExitStatus.USAGE
    actor = Actor(worker, identity)
    hold_lifeline(worker.close)
    on_terminate(actor.drain)
    try:
        return actor.run()
    finally:
        worker.close()


__all__ = ["Actor", "ActorIdentity", "run_actor"]
