"""The one loop that every worker runs: hello, work, heartbeat, resend, drain.

The loop's thread owns the socket and answers for the process; each lease runs in a thread of its
own and speaks through its `Port`.  A result is kept and said again until the coordinator
acknowledges it.  An exception in a piece of work is a bug of ours: the actor ends with status 1
and the supervisor starts the next one.
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
from actors.held import Held
from actors.log import open_log
from actors.port import Done, LeasePort, Worker
from actors.post import Post, credential_of, hold_lifeline, name_process, on_terminate
from actors.usage import EXIT_USAGE
from protocol import codec, transport
from protocol.messages import (
    Beat,
    Blocked,
    Heard,
    Hello,
    Message,
    Recorded,
    Refuse,
    Reserved,
    Retire,
    Returned,
    Revoke,
    Running,
    Stored,
    Welcome,
    Who,
    Work,
)

DRAIN_S = 25.0
NEWS_S = 0.2  # a change of `doing` reaches people this soon
UNWELCOMED_BEAT_S = 1.0  # a Hello may get lost: a beat from a stranger is answered with `Who`
EXIT_REFUSED = 5


class Actor:
    """One worker process at its post."""

    def __init__(self, worker: Worker, post: Post) -> None:
        self.worker = worker
        self.post = post
        self.log = open_log(post.run_dir, post.slot)
        self._codec = codec.to_worker()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        key = credential_of(post, worker.role)
        self._line = transport.Line(self._context, post.address, post.incarnation, key)
        self._socket = self._line.socket
        self._held = Held()
        self._call_numbers = itertools.count(1)
        self._said: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._beat_s = UNWELCOMED_BEAT_S
        # Not before Hello had its chance: a stranger's beat is answered with `Who`.
        self._next_beat = time.monotonic() + UNWELCOMED_BEAT_S
        self._next_resend = 0.0
        self._rtt_ms: float | None = None
        self._doing = ""
        self._draining_until: float | None = None
        self._exit: int | None = None

    def run(self) -> int:
        """Work until retired, refused or drained; return the exit status."""
        self.log.info("up", pid=os.getpid(), role=self.worker.role)
        poller = zmq.Poller()
        for source in (self._socket, self._line.monitor, self._wake):
            poller.register(source, zmq.POLLIN)
        while self._exit is None:
            ready = dict(poller.poll(self._poll_ms(time.monotonic())))
            if self._line.news(time.monotonic()).up:
                self._hello()
            if self._wake in ready:
                os.eventfd_read(self._wake)
            self._read_socket()
            self._read_threads()
            self._keep_time(time.monotonic())
        self.log.info("down", status=self._exit)
        self._line.close()
        self._context.term()
        return self._exit

    def drain(self) -> None:
        """Take nothing more and leave soon; may be called from a signal handler."""
        if self._draining_until is None:
            self._draining_until = time.monotonic() + DRAIN_S
        self._say(Retire())

    # --- outgoing ----------------------------------------------------------------------------

    def _say(self, what: object) -> None:
        self._said.put(what)
        os.eventfd_write(self._wake, 1)

    def _send(self, message: Message) -> None:
        for frames in failpoints.sending(message, self._codec.encode(message)):
            try:
                self._socket.send_multipart(frames, zmq.NOBLOCK)
            except zmq.Again:
                # Nobody is connected; what matters is said again after the next Welcome.
                self.log.info("unsent", message=type(message).__name__)
        failpoints.reach_message("sent", message)

    @property
    def _credit(self) -> int:
        return 0 if self._draining_until is not None else self.worker.credit

    def _hello(self) -> None:
        self._send(
            Hello(
                role=self.worker.role,
                slot=self.post.slot,
                incarnation=self.post.incarnation,
                pid=os.getpid(),
                credit=self._credit,
                holds=self._held.leases(),
                device=self.worker.device,
            )
        )

    def _beat(self) -> None:
        self._send(
            Beat(
                holds=self._held.leases(),
                credit=self._credit,
                doing=self._doing,
                sent=time.monotonic(),
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
            except codec.BadFrame as error:
                self.log.warning("bad frame", error=str(error))
                continue
            failpoints.reach_message("hear", message)
            self._heard(message)
            failpoints.reach_message("heard", message)

    def _heard(self, message: Message) -> None:
        match message:
            case Welcome():
                self._beat_s = message.beat_s
                for again in self._held.unacknowledged():
                    self._send(again)
            case Who():
                self._hello()
            case Refuse():
                self.log.error("refused", reason=message.reason)
                self._exit = EXIT_REFUSED
            case Heard():
                self._rtt_ms = (time.monotonic() - message.sent) * 1000
            case Recorded():
                self._held.forget(message.lease)
            case Stored() | Reserved():
                self._told(message)
            case Revoke():
                self._held.revoke(message.lease)
            case Retire():
                self.drain()
            case _:
                self._start(message)  # type: ignore[arg-type]  # all that is left is Work

    def _told(self, message: Stored | Reserved) -> None:
        """Let go on what waited for the coordinator's disk."""
        holding = self._held.get(message.lease.work)
        if holding is None:
            return
        with holding.stored:
            if isinstance(message, Stored):
                holding.unstored.clear()
            elif holding.asked is not None and holding.asked.number == message.number:
                holding.asked = None
            holding.stored.notify_all()

    def _start(self, request: Work) -> None:
        holding = self._held.take(request.lease)
        if holding is None:
            self._beat()
            return
        port = LeasePort(holding, self._say, self._call_numbers)
        threading.Thread(
            target=self._perform, args=(request, port), name=request.lease.work, daemon=True
        ).start()

    def _perform(self, request: Work, port: LeasePort) -> None:
        try:
            failpoints.reach("before-work")
            result = self.worker.work(request, port)
            failpoints.reach("after-work")
            self._say(Done(request.lease.work, result))
        except BaseException as error:  # noqa: BLE001  # the outermost line: the actor ends with it
            self._say(error)

    def _read_threads(self) -> None:
        while True:
            try:
                said = self._said.get_nowait()
            except queue.Empty:
                return
            self._heard_thread(said)

    def _heard_thread(self, said: object) -> None:
        match said:
            case str():
                self._doing = said
                self._next_beat = min(self._next_beat, time.monotonic() + NEWS_S)
            case Done():
                self._finished(said)
            case Running():
                holding = self._held.get(said.lease.work)
                if holding is not None:
                    holding.running = True
                self._send(said)
            case Retire():
                self._held.stop_all()
                self._beat()
            case Message():
                self._send(said)
            case BaseException():
                self.log.error("bug", exc_info=said)
                raise said

    def _finished(self, done: Done) -> None:
        self._doing = ""
        result = done.result
        if isinstance(result, Blocked):
            self._send(result)
            result = Returned(lease=result.lease, reason=result.reason)
        kept = self._held.finish(done.work, result)
        if kept is not None:
            self._send(kept)

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
            for again in self._held.unacknowledged():
                self._send(again)
        if self._draining_until is not None and (
            not len(self._held) or now >= self._draining_until
        ):
            for lease in self._held.unfinished():
                self._send(Returned(lease=lease, reason="not done in time to leave"))
            self._exit = 0


def run_actor(worker: Worker, post: Post) -> int:
    """Run `worker` at `post` until it is told to leave; return the process's exit status."""
    name_process(post.slot)
    try:
        failpoints.arm(post.slot, post.run_dir)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_USAGE
    actor = Actor(worker, post)
    hold_lifeline(worker.close)
    on_terminate(actor.drain)
    try:
        return actor.run()
    finally:
        worker.close()


__all__ = ["Actor", "Post", "run_actor"]
